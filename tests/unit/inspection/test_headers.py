"""A header is believed as far as its file bears it out."""

import json

import pytest

from inspection_files import write_header, write_safetensors
from tielab.errors import RequestError
from tielab.inspection.headers import BITS, read_header, read_weights

GOOD = {"dtype": "F32", "shape": [4, 2], "data_offsets": [0, 32]}


def header(file, num_value_bytes=32, **changes):
    write_header(file, json.dumps({"a": {**GOOD, **changes}}).encode(), num_value_bytes)
    return file


@pytest.fixture
def file(tmp_path):
    return tmp_path / "model.safetensors"


def test_places_are_those_of_the_library(file):
    import torch
    from safetensors.torch import save_file

    tensors = {
        "b": torch.arange(6.0).view(2, 3),
        "a": torch.ones(5, dtype=torch.int16),
        "s": torch.tensor(7.0),
    }
    save_file(tensors, file)
    for found in read_header(file):
        expected = tensors[found.name]
        assert found.shape == tuple(expected.shape)
        content = file.read_bytes()[found.begin : found.begin + found.num_bytes]
        assert content == expected.numpy().tobytes()


def test_types_are_those_of_the_library(file):
    from safetensors import safe_open

    write_safetensors(file, {name: (name, [4, 2]) for name in BITS})
    with safe_open(file, framework="numpy") as theirs:
        assert set(theirs.keys()) == {tensor.dtype for tensor in read_header(file)} == set(BITS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "F33"}, "a has dtype F33"),
        ({"dtype": ["F32"]}, "dtype"),
        ({"shape": [4, 3]}, r"a F32 \[4, 3\] at bytes 0 to 32 of 32 bytes"),
        ({"shape": [-4, -2]}, r"a has shape \[-4, -2\]"),
        ({"shape": [4.0, 2]}, "a has shape"),
        ({"shape": [True, 8]}, "a has shape"),
        ({"shape": 8}, "a has no dtype, shape and data_offsets"),
        ({"data_offsets": [0, 33]}, "at bytes 0 to 33"),
        ({"data_offsets": [8, 40]}, "at bytes 8 to 40 of 32"),
        ({"data_offsets": [32, 0]}, "at bytes 32 to 0"),
        ({"data_offsets": [0]}, "a has no dtype"),
        ({"shape": [2**62, 2**62], "data_offsets": [0, 2**126]}, "truncated or not safetensors"),
    ],
)
def test_header_that_its_file_does_not_bear_out_is_refused(file, changes, message):
    with pytest.raises(RequestError, match=message) as caught:
        read_header(header(file, **changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 8,
        b"PK\3\4anything at all",
        (2**63).to_bytes(8, "little"),
        (10**8 + 1).to_bytes(8, "little"),
    ],
)
def test_file_that_is_none_is_refused(file, content):
    file.write_bytes(content)
    with pytest.raises(RequestError, match="is truncated or not safetensors"):
        read_header(file)


def test_header_beyond_the_limit_is_not_read(file):
    file.write_bytes((10**8 + 1).to_bytes(8, "little"))
    with file.open("r+b") as handle:
        handle.truncate(3 * 10**8)
    with pytest.raises(RequestError, match="a header of 100,000,001 bytes"):
        read_header(file)


@pytest.mark.parametrize("text", [b"[]", b"{", b"[" * 50_000, b'{"a": 1, "a": 1}', b"\xff\xfe"])
def test_header_that_is_no_object_is_refused(file, text):
    write_header(file, text)
    with pytest.raises(RequestError, match=r"not safetensors|is not JSON"):
        read_header(file)


def test_overlapping_tensors_are_refused(file):
    write_safetensors(file, {"a": ("F32", [4]), "b": ("F32", [4])}, b=(8, 24))
    with pytest.raises(RequestError, match="b overlaps the tensor before it"):
        read_header(file)


def test_names_say_nothing_to_a_terminal(file):
    write_header(file, json.dumps({"\x1b[31m\n": {**GOOD, "dtype": "F33"}}).encode(), 32)
    with pytest.raises(RequestError) as caught:
        read_header(file)
    assert "\x1b" not in str(caught.value)


def write_index(tmp_path, weight_map):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/passwd", "a/b.safetensors", "model.bin", 3])
def test_index_that_leads_elsewhere_is_refused(tmp_path, name):
    write_index(tmp_path, {"a": name})
    with pytest.raises(RequestError, match="which is no safetensors file beside it"):
        read_weights(tmp_path)


def test_index_with_a_missing_shard_is_refused(tmp_path):
    write_index(tmp_path, {"a": "model-00001-of-00002.safetensors"})
    with pytest.raises(RequestError, match=r"names model-00001-of-00002.safetensors, which is not there"):
        read_weights(tmp_path)


def test_index_of_another_model_is_refused(tmp_path):
    write_index(tmp_path, {"a": "x.safetensors", "b": "x.safetensors"})
    write_safetensors(tmp_path / "x.safetensors", {"a": ("F32", [2])})
    with pytest.raises(RequestError, match=r"places b in x.safetensors, which does not hold it"):
        read_weights(tmp_path)


def test_two_models_in_one_folder_are_refused(tmp_path):
    for name in ("one", "two"):
        write_safetensors(tmp_path / f"{name}.safetensors", {"a": ("F32", [2])})
    with pytest.raises(RequestError, match=r"a is in one.safetensors and in two.safetensors"):
        read_weights(tmp_path)


def test_some_of_the_shards_are_refused(tmp_path):
    for number in (1, 3):
        file = tmp_path / f"model-0000{number}-of-00003.safetensors"
        write_safetensors(file, {f"a{number}": ("F32", [2])})
    with pytest.raises(RequestError, match="2 shards of the 3 of model"):
        read_weights(tmp_path)


def test_nothing_there_is_refused(tmp_path):
    with pytest.raises(RequestError, match="no safetensors file there"):
        read_weights(tmp_path)
    with pytest.raises(RequestError, match="no such file or folder"):
        read_weights(tmp_path / "missing")
