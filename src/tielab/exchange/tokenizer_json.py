"""A tokenizer as the ``tokenizers`` library describes it, with the same ids. Imports no torch."""

import json
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers

from tielab.data.tokenizer import BYTE_OF_CHARACTER, UNUSED, CharTokenizer, Tokenizer

CHARACTER_OF_BYTE = {byte: character for character, byte in BYTE_OF_CHARACTER.items()}


def tokenizer_json(tokenizer: Tokenizer) -> str:
    """The text of a ``tokenizer.json`` that gives the ids of a tokenizer for every text it accepts.

    Text that it refuses is refused there too, and no token is added before or after a text.
    """
    if isinstance(tokenizer, CharTokenizer):
        return str(_character_level(tokenizer).to_str())
    description = json.loads(tokenizer.to_json())
    processor = description.get("post_processor") or {}
    if processor.get("type") != "ByteLevel":  # any other one adds tokens
        description["post_processor"] = None
    return json.dumps(description, ensure_ascii=False)


def _character_level(tokenizer: CharTokenizer) -> tokenizers.Tokenizer:
    """A word for each character, written in byte-level characters, and for each byte to spell the others.

    The byte of a character that has an id of its own is never used; its token must be another text all the
    same, and decode to that byte.
    """
    vocab: dict[str, int] = {}
    for i, piece in reversed(list(enumerate(tokenizer.pieces))):  # characters come after bytes
        word = "".join(CHARACTER_OF_BYTE[byte] for byte in piece)
        vocab[UNUSED + word if word in vocab else word] = i
    library = tokenizers.Tokenizer(
        models.BPE(vocab=vocab, merges=[], ignore_merges=True)
        if tokenizer.byte_fallback
        # Without a token for the unknown it raises, where BPE would leave the character out.
        else models.WordLevel(vocab=vocab, unk_token=UNUSED)
    )
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    library.decoder = decoders.Sequence([decoders.Replace(UNUSED, ""), decoders.ByteLevel()])
    return library


def tokenizer_config(block_size: int) -> dict[str, Any]:
    """The ``tokenizer_config.json`` beside it: a special token's spelling is text, as in the training."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": block_size,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,
    }
