"""Defaults and names are those of transformers."""

import json

import pytest

from tielab.errors import RequestError
from tielab.inspection.families import ALWAYS_TIED, TIED_BY_DEFAULT, UNTIED_BY_DEFAULT, read_config


def config_in(tmp_path, **content):
    (tmp_path / "config.json").write_text(json.dumps(content))
    return read_config(tmp_path)


def test_defaults_are_those_of_transformers(transformers):
    classes = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    for family in TIED_BY_DEFAULT | UNTIED_BY_DEFAULT:
        assert classes[family]().tie_word_embeddings is (family in TIED_BY_DEFAULT), family
        asked = classes[family](tie_word_embeddings=False)
        assert asked.tie_word_embeddings is (family in ALWAYS_TIED), family


def test_default_is_named(tmp_path):
    found = config_in(tmp_path, model_type="gpt2")
    assert (found.tied, found.source) == (True, "the default of gpt2")
    assert config_in(tmp_path, model_type="llama").tied is False


def test_nothing_is_guessed_of_an_unknown_family(tmp_path):
    found = config_in(tmp_path, model_type="martian")
    assert (found.tied, found.source) == (None, "not said, and no default of martian is known here")


def test_text_part_of_a_config_counts(tmp_path):
    found = config_in(tmp_path, model_type="x", text_config={"tie_word_embeddings": True, "vocab_size": 7})
    assert (found.tied, found.vocab_size) == (True, 7)


def test_contradiction_inside_a_config_is_said(tmp_path):
    found = config_in(tmp_path, tie_word_embeddings=False, text_config={"tie_word_embeddings": True})
    assert (found.tied, found.source) == (None, "tie_word_embeddings is false, in the text part true")


def test_values_of_other_types_are_none(tmp_path):
    found = config_in(
        tmp_path, model_type=3, tie_word_embeddings="yes", vocab_size="many", architectures=[None]
    )
    assert (found.tied, found.family, found.vocab_size, found.architecture) == (None, None, None, None)


@pytest.mark.parametrize("said", ["false", 1])
def test_tie_that_is_neither_true_nor_false_is_said_and_no_default_taken(tmp_path, said):
    found = config_in(tmp_path, model_type="llama", tie_word_embeddings=said)
    assert (found.tied, found.source) == (
        None, f"tie_word_embeddings is {json.dumps(said)}, neither true nor false"
    )  # fmt: skip


def test_no_config_is_none(tmp_path):
    assert read_config(tmp_path) is None


@pytest.mark.parametrize("text", ["[]", "{", '{"a": 1, "a": 2}', "[" * 100_000, "\xff"])
def test_broken_config_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(RequestError, match=r"config.json is not"):
        read_config(tmp_path)
