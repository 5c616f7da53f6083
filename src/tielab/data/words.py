"""The ids of a text, found a word at a time: most words were seen before. Imports no torch."""

import itertools
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import models, pre_tokenizers

Ids = npt.NDArray[np.int64]

WORDS = re.compile(r"[^\S\x1c-\x1f]*[\S\x1c-\x1f]+|\s+")
"""White space and what follows it: GPT-2's rules, for which a separator is none, never go on behind that."""
KEPT_BYTES = 1 << 25
"""Of words and their entries, roughly; then all are forgotten."""
ENTRY_BYTES = 100

Value = TypeVar("Value", bound=np.generic)


def gather(values: npt.NDArray[Value], starts: Ids, lengths: Ids) -> npt.NDArray[Value]:
    """The stretches of an array that begin at ``starts`` and are ``lengths`` long, one behind the other."""
    shifts = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    chosen: npt.NDArray[Value] = values[np.arange(len(shifts)) + shifts]
    return chosen


def encodes_by_word(library: tokenizers.Tokenizer) -> bool:
    """Whether the ids of a text are those of its words: GPT-2's rules, and nothing before or beside them."""
    split, model = library.pre_tokenizer, library.model
    if not (isinstance(split, pre_tokenizers.ByteLevel) and isinstance(model, models.BPE)):
        return False
    plain = library.normalizer is None and model.dropout is None
    added = library.get_added_tokens_decoder().values()
    return bool(
        plain and split.use_regex and not split.add_prefix_space and all(token.special for token in added)
    )


class WordEncoder:
    """Gives the ids that a tokenizer which ``encodes_by_word`` gives, and asks it for each word once."""

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        self._library = library
        self._forget()

    def _forget(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict(itertools.count().__next__)
        self._num_bytes = 0
        empty = np.zeros(0, dtype=np.int64)
        self._ids, self._starts, self._lengths = empty, empty, empty

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text."""
        if self._num_bytes > KEPT_BYTES:
            self._forget()
        words = [WORDS.findall(text) for text in texts]
        every = itertools.chain.from_iterable(words)
        numbers = np.fromiter(map(self._numbers.__getitem__, every), dtype=np.int64)
        self._learn(list(itertools.islice(self._numbers, len(self._lengths), None)))
        lengths = self._lengths[numbers]
        ids = gather(self._ids, self._starts[numbers], lengths)
        ends = np.append(0, np.cumsum(lengths))[np.cumsum([len(found) for found in words], dtype=np.int64)]
        return [ids[start:end] for start, end in itertools.pairwise([0, *ends.tolist()])]

    def _learn(self, words: list[str]) -> None:
        """Ask for the ids of words that have just got their numbers."""
        found = [each.ids for each in self._library.encode_batch_fast(words, add_special_tokens=False)]
        self._num_bytes += sum(map(len, words)) + ENTRY_BYTES * len(words)
        self._ids = np.append(self._ids, np.fromiter(itertools.chain.from_iterable(found), dtype=np.int64))
        self._lengths = np.append(self._lengths, np.fromiter(map(len, found), dtype=np.int64))
        self._starts = np.cumsum(self._lengths) - self._lengths
