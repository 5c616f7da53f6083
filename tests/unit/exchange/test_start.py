"""What importing a folder asks of train.py, and what it leaves to the request."""

import json

import pytest
from exchange_runs import TOKENIZER

from tielab.errors import RequestError
from tielab.exchange.start import import_overrides, start
from tielab.exchange.tokenizer_json import tokenizer_json

V = TOKENIZER.vocab_size
CONFIG = {
    "model_type": "gpt2", "vocab_size": V, "n_positions": 32, "n_embd": 48, "n_layer": 3, "n_head": 4,
    "activation_function": "gelu_new", "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "it's a model"
    place.mkdir()
    (place / "config.json").write_text(json.dumps(CONFIG))
    (place / "tokenizer.json").write_text(tokenizer_json(TOKENIZER))
    return place


def asked(folder, *overrides):
    return dict(override.split("=", 1) for override in import_overrides(folder, overrides))


def test_sizes_tokenizer_and_tie_are_the_folders(folder):
    path = str(folder).replace("'", "\\'")
    assert asked(folder) == {
        "model.embed_dim": "48", "model.num_layers": "3", "model.num_heads": "4", "model.hidden_dim": "192",
        "model.activation": "gelu_tanh", "model.tied": "false", "data.block_size": "32",
        "data.tokenizer.kind": "file", "data.tokenizer.vocab_size": str(V),
        "data.tokenizer.path": f"'{path}'", "init_from": f"'{path}'",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("override", "left"),
    [
        ("model.tied=true,false", {"model.tied"}),
        ("tying=tied", {"model.tied"}),
        ("data.block_size=8", {"data.block_size"}),
        ("width=d64", {"model.embed_dim", "model.num_heads", "model.hidden_dim"}),
        ("vocab=char", {"data.tokenizer.kind", "data.tokenizer.path", "data.tokenizer.vocab_size"}),
        ("+data.tokenizer.path=x", {"data.tokenizer.path"}),
    ],
)
def test_what_the_request_says_is_left_to_it(override, left, folder):
    assert asked(folder).keys() - asked(folder, override).keys() == left


def test_padded_rows_are_refused_with_both_numbers(folder):
    (folder / "config.json").write_text(json.dumps(CONFIG | {"vocab_size": 128}))
    with pytest.raises(RequestError, match=rf"has 128 rows, its tokenizer {V} ids"):
        import_overrides(folder, [])


def test_a_folder_without_tokenizer_needs_one_named(folder):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(RequestError, match="no tokenizer there; add vocab=NAME"):
        import_overrides(folder, [])
    assert "data.tokenizer.kind" not in asked(folder, "vocab=char")


def test_a_folder_without_model_is_refused(tmp_path):
    with pytest.raises(RequestError, match=r"no config\.json there"):
        start(tmp_path, [])
