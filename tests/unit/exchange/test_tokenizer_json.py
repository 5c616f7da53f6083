"""The exported tokenizer gives the ids of ours for every text ours accepts."""

import json
import string

import pytest
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, processors

from tielab.data.build_tokenizer import build_tokenizer
from tielab.data.tokenizer import CharTokenizer, LibraryTokenizer, Tokenizer
from tielab.errors import RequestError
from tielab.exchange.tokenizer_json import tokenizer_config, tokenizer_json

ALPHABET = "etaé €\n\r😀\u2060\u0310Ġ" + string.digits
BPE = {"kind": "bpe", "vocab_size": 290}
TRAINING_TEXTS = ["the cat sat on the mat, the city of the cat. " * 20, "Ünïcödé <|endoftext|> " * 20]


def with_special_token():
    library = tokenizers.Tokenizer.from_str(build_tokenizer(BPE, TRAINING_TEXTS).to_json())
    library.add_special_tokens(["<|endoftext|>"])
    library.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 290)]
    )
    return LibraryTokenizer(library)


TOKENIZERS: dict[str, Tokenizer] = {
    "byte": CharTokenizer("", byte_fallback=True),
    "char": CharTokenizer(ALPHABET, byte_fallback=True),
    "char without bytes": CharTokenizer(ALPHABET, byte_fallback=False),
    "bpe": build_tokenizer(BPE, TRAINING_TEXTS),
    "file": with_special_token(),
}


@pytest.fixture(scope="session", params=TOKENIZERS)
def pair(request, tmp_path_factory):
    """A tokenizer and what transformers makes of its export."""
    folder = tmp_path_factory.mktemp("tokenizer")
    ours = TOKENIZERS[request.param]
    (folder / "tokenizer.json").write_text(tokenizer_json(ours), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config(16)))
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    return ours, transformers.AutoTokenizer.from_pretrained(folder)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_ids_are_equal_and_come_back(pair, data):
    ours, theirs = pair
    accepts_all = ours is not TOKENIZERS["char without bytes"]
    characters = st.one_of(st.sampled_from(ALPHABET), st.characters(exclude_categories=["Cs"]))
    pieces = st.one_of(characters, st.sampled_from(["<|endoftext|>", "the cat", "  ", "\u2060a", "Ġe"]))
    parts = pieces if accepts_all else st.sampled_from(ALPHABET)
    text = "".join(data.draw(st.lists(parts, max_size=20)))
    ids = ours.encode(text).tolist()
    assert theirs(text)["input_ids"] == ids
    assert theirs.decode(ids) == text == ours.decode(ids)


def test_every_id_stands_for_the_same_text(pair):
    ours, theirs = pair
    assert len(theirs) == ours.vocab_size
    for i in range(ours.vocab_size):
        assert theirs.decode([i]) == ours.decode([i])


def test_it_can_be_read_here_again(pair):
    """As the tokenizer of another run: the same ids, the same bytes for each."""
    ours, _ = pair
    again = LibraryTokenizer(tokenizers.Tokenizer.from_str(tokenizer_json(ours)))
    assert again.pieces == ours.pieces
    assert again.encode("cat"[1:]).tolist() == ours.encode("at").tolist()


def test_a_character_without_id_is_refused_by_both(pair):
    ours, theirs = pair
    if ours is TOKENIZERS["char without bytes"]:
        with pytest.raises(RequestError, match="has no id"):
            ours.encode("ax")
        with pytest.raises(Exception, match="UNK"):
            theirs("ax")


def test_a_byte_level_step_after_the_model_is_kept():
    library = tokenizers.Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel()
    library.post_processor = processors.ByteLevel(trim_offsets=False)
    described = json.loads(tokenizer_json(LibraryTokenizer(library)))
    assert described["post_processor"]["type"] == "ByteLevel"
