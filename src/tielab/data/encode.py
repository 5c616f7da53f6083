"""Documents to token files, in memory that grows with the largest document and not with their number.

Imports no torch.
"""

import hashlib
import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tielab.data.progress import followed
from tielab.data.source import SPLITS
from tielab.data.tokenizer import Tokenizer
from tielab.errors import RequestError

BATCH_CHARACTERS = 1 << 20
"""Documents are tokenized together until they have as many."""
CHUNK_TOKENS = 1 << 20

Tokens = npt.NDArray[Any]


def write_splits(
    folder: Path, documents: Iterable[tuple[str, str]], tokenizer: Tokenizer, dtype: str
) -> dict[str, dict[str, Any]]:
    """Write ``train.bin``, ``validation.bin`` and ``test.bin`` and describe what is in each.

    Args:
        documents: the split and the text of each.

    Raises:
        RequestError: a character has no id, or the ids do not give the text back.
    """
    writers = {name: _SplitWriter(name, folder / f"{name}.bin", tokenizer, dtype) for name in SPLITS}
    try:
        for name, text in documents:
            writers[name].add(text)
        for writer in writers.values():
            writer.flush()
    finally:
        for writer in writers.values():
            writer.file.close()
    return {name: writer.summary() for name, writer in writers.items()}


class _SplitWriter:
    """The documents of one split, tokenized some at a time."""

    def __init__(self, name: str, path: Path, tokenizer: Tokenizer, dtype: str) -> None:
        self.name = name
        self.path = path
        self.tokenizer = tokenizer
        self.dtype = dtype
        self.file = path.open("wb")
        self.num_documents = 0
        self.num_words = 0
        self._waiting: list[str] = []
        self._num_characters = 0

    def add(self, text: str) -> None:
        self._waiting.append(text)
        self._num_characters += len(text)
        if self._num_characters >= BATCH_CHARACTERS:
            self.flush()

    def flush(self) -> None:
        """Tokenize and write what waits."""
        if not self._waiting:
            return
        tokens = self._encode(self._waiting)
        # Words never span documents, which end in a blank line; the first token is context only.
        num_first_bytes = 0 if self.num_documents else len(self.tokenizer.pieces[tokens[0]])
        self.num_words += num_scored_words("".join(self._waiting), num_first_bytes)
        self.num_documents += len(self._waiting)
        self.file.write(tokens.astype(self.dtype).tobytes())
        self._waiting, self._num_characters = [], 0

    def _encode(self, texts: list[str]) -> npt.NDArray[np.int64]:
        """Their ids, shape (num_tokens,), which give the texts back."""
        try:
            tokens = np.concatenate(self.tokenizer.encode_documents(texts))
        except RequestError as error:
            raise RequestError(f"{self.name} split: {error}") from None
        assert tokens.size == 0 or tokens.max() < self.tokenizer.vocab_size, "an id outside the vocabulary"
        text = "".join(texts).encode("utf-8")
        if self.tokenizer.decode_bytes(tokens) != text:
            raise RequestError(
                f"{self.name} split: the tokenizer loses text ({len(text)} bytes in, "
                f"{int(self.tokenizer.token_bytes[tokens].sum())} bytes out or other ones); choose a "
                "byte-level tokenizer without normalizer, prefix space or stripping tokens"
            )
        return tokens

    def summary(self) -> dict[str, Any]:
        tokens = np.memmap(self.path, dtype=self.dtype, mode="r")
        return {
            "num_documents": self.num_documents,
            "num_scored_words": self.num_words,
            **describe(self.tokenizer, tokens),
        }


def num_scored_words(text: str, num_first_bytes: int) -> int:
    """Words of a text behind its first ``num_first_bytes`` bytes, as ``str.split`` separates them.

    Those bytes are the first token, which is context only. A word that it cuts counts, so two
    tokenizers may differ by the words that lie wholly in their first tokens, and by no other.
    """
    if not num_first_bytes:
        return len(text.split())
    return len(text.encode("utf-8")[num_first_bytes:].decode("utf-8", errors="replace").split())


def describe(tokenizer: Tokenizer, tokens: Tokens) -> dict[str, Any]:
    """How many tokens and bytes there are, and the sha256 of the ids and of the bytes each stands for."""
    digest, total, place = hashlib.sha256(), 0, 0

    def followed_chunks() -> Iterator[Tokens]:
        return followed(chunks(tokens), "hashing tokens", lambda: place, lambda: tokens.nbytes)

    for chunk in followed_chunks():
        digest.update(chunk.astype("<i8").tobytes())
        place += chunk.nbytes
    place = 0
    for chunk in followed_chunks():
        num_bytes = tokenizer.token_bytes[chunk]
        digest.update(num_bytes.astype("<i8").tobytes())
        total += int(num_bytes.sum())
        place += chunk.nbytes
    return {"num_tokens": len(tokens), "num_bytes": total, "content_hash": digest.hexdigest()}


def chunks(tokens: Tokens) -> Iterator[Tokens]:
    """The tokens some at a time, for they may not fit into memory; of a mapped file none stays mapped."""
    mapped = getattr(tokens, "_mmap", None)
    for start in range(0, len(tokens), CHUNK_TOKENS):
        yield tokens[start : start + CHUNK_TOKENS]
        if mapped is not None:  # else the whole file would count as memory of this process
            mapped.madvise(mmap.MADV_DONTNEED)
