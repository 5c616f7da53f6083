"""Tokenizers that are trained on a text, or read from a file. Imports no torch."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from tielab.data.tokenizer import NUM_BYTE_IDS, CharTokenizer, LibraryTokenizer, Tokenizer
from tielab.errors import RequestError

GPT2_FILE_PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))


def build_tokenizer(tokenizer_config: dict[str, Any], train_texts: Iterable[str]) -> Tokenizer:
    """The tokenizer a config asks for, trained on ``train_texts`` alone if it is trained at all.

    They are read once, and not kept: a BPE keeps each different word with its count.

    Raises:
        RequestError: the vocabulary size cannot be had, or the tokenizer file cannot be used.
    """
    kind, vocab_size = tokenizer_config["kind"], tokenizer_config["vocab_size"]
    if kind == "byte":
        return CharTokenizer("", byte_fallback=True)
    if kind == "char":
        return _train_char(train_texts, vocab_size, tokenizer_config["byte_fallback"])
    if kind == "bpe":
        return _train_bpe(train_texts, vocab_size)
    return _load_file(tokenizer_config["path"], vocab_size)


def _train_char(train_texts: Iterable[str], vocab_size: int | None, byte_fallback: bool) -> CharTokenizer:
    """The most frequent characters; among equally frequent ones the lower code point first."""
    counts: Counter[str] = Counter()
    for text in train_texts:
        counts.update(text)
    characters = "".join(sorted(counts, key=lambda character: (-counts[character], character)))
    num_byte_ids = NUM_BYTE_IDS if byte_fallback else 0
    obtainable = len(characters) + num_byte_ids
    if vocab_size is None:
        return CharTokenizer(characters, byte_fallback)
    if not num_byte_ids <= vocab_size <= obtainable:
        raise RequestError(
            f"data.tokenizer.vocab_size={vocab_size}: the characters of this training text allow "
            f"{num_byte_ids} to {obtainable} ids; choose one of these or null for all"
        )
    return CharTokenizer(characters[: vocab_size - num_byte_ids], byte_fallback)


def _byte_level(model: models.Model) -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(model)
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    return library


def _train_bpe(train_texts: Iterable[str], vocab_size: int) -> LibraryTokenizer:
    library = _byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[],
        show_progress=False,
    )
    library.train_from_iterator(train_texts, trainer)
    obtained = library.get_vocab_size()
    if obtained < vocab_size:
        raise RequestError(
            f"data.tokenizer.vocab_size={vocab_size}: this training text yields at most {obtained}; "
            f"choose vocab_size<={obtained}"
        )
    return LibraryTokenizer(library)


def tokenizer_files(path: str) -> list[Path]:
    """The files a tokenizer is read from: one tokenizer.json, or GPT-2's vocabulary and merges.

    Raises:
        RequestError: they are not there.
    """
    named = Path(path).expanduser()
    if named.is_file():
        return [named]
    pairs = [[named / name for name in pair] for pair in GPT2_FILE_PAIRS]
    for files in [[named / "tokenizer.json"], *pairs]:
        if all(file.is_file() for file in files):
            return files
    raise RequestError(
        f"data.tokenizer.path={path}: no tokenizer there; give a tokenizer.json, or a folder with "
        "vocab.json and merges.txt or with encoder.json and vocab.bpe"
    )


def _load_file(path: str, vocab_size: int) -> LibraryTokenizer:
    tokenizer = read_tokenizer(path)
    found = tokenizer.vocab_size
    if found != vocab_size:
        raise RequestError(
            f"data.tokenizer.vocab_size={vocab_size} but {path} has {found} ids; "
            f"set data.tokenizer.vocab_size={found}"
        )
    return tokenizer


def read_tokenizer(path: str) -> LibraryTokenizer:
    """The tokenizer in a file or a folder.

    Raises:
        RequestError: there is none, it cannot be read, or it is not byte-level.
    """
    try:
        tokenizer = LibraryTokenizer(_read_library(tokenizer_files(path)))
        assert tokenizer.pieces
    except RequestError:
        raise
    except Exception as error:  # the library raises bare Exception for a file it cannot parse
        reason = " ".join(str(error).split())
        raise RequestError(
            f"data.tokenizer.path={path} cannot be read as a tokenizer ({reason}); replace the file"
        ) from None
    return tokenizer


def _read_library(files: list[Path]) -> tokenizers.Tokenizer:
    if len(files) == 1:
        return tokenizers.Tokenizer.from_file(str(files[0]))
    vocab = json.loads(files[0].read_text(encoding="utf-8"))
    lines = files[1].read_text(encoding="utf-8").split("\n")
    rules = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    return _byte_level(models.BPE(vocab=vocab, merges=[(left, right) for left, right in rules]))
