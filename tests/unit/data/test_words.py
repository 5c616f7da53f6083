"""Words are counted on the text that is scored, whatever tokenizer cuts it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tielab.data.encode import num_scored_words
from tielab.data.prepare import prepare

MakeConfig = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    ("text", "num_first_bytes", "num_words"),
    [
        ("the tied head\n\n", 0, 3),
        ("the tied head\n\n", 1, 3),  # "he tied head"
        ("the tied head\n\n", 3, 2),  # " tied head"
        ("the tied head\n\n", 4, 2),
        ("the tied head\n\n", 5, 2),  # "ied head"
        ("é è\n\n", 1, 2),  # half a character, and a word
        ("one\u00a0two\tthree\n\nfour\n\n", 0, 4),
        ("a\n\n", 1, 0),
    ],
)
def test_words_by_hand(text: str, num_first_bytes: int, num_words: int) -> None:
    assert num_scored_words(text, num_first_bytes) == num_words


@given(st.text(min_size=1), st.data())
def test_a_first_token_inside_the_first_word_changes_nothing(text: str, data: st.DataObject) -> None:
    text = "x" + text
    cut = data.draw(st.integers(0, len(text.split()[0].encode()) - 1))
    assert num_scored_words(text, cut) == len(text.split())


@given(st.lists(st.text("abé", min_size=1), min_size=1), st.data())
def test_a_first_token_takes_away_the_words_it_holds_wholly(words: list[str], data: st.DataObject) -> None:
    num_held = data.draw(st.integers(0, len(words)))
    first = "".join(f"{word} " for word in words[:num_held])
    assert num_scored_words(" ".join(words), len(first.encode())) == len(words) - num_held


@pytest.mark.parametrize("name", ["train", "validation", "test"])
def test_every_tokenizer_counts_the_same_words(name: str, text_file: Path, make_config: MakeConfig) -> None:
    byte, bpe = (
        prepare(make_config(text_file, tokenizer=tokenizer))
        for tokenizer in ({}, {"kind": "bpe", "vocab_size": 340})
    )
    text = byte.tokenizer.decode(getattr(byte, name).tokens)
    assert getattr(byte, name).num_scored_words == len(text.split())  # its first token is one byte of a word
    first = bpe.tokenizer.decode(getattr(bpe, name).tokens[:1])
    missing = len(text.split()) - getattr(bpe, name).num_scored_words
    assert missing == (first == text.split()[0])


def test_a_part_of_a_split_says_that_its_words_are_not_counted(
    text_file: Path, make_config: MakeConfig
) -> None:
    prepared = prepare(make_config(text_file))
    part = prepared.train.first(50, prepared.tokenizer)
    assert (part.num_documents, part.num_scored_words) == (None, None)
