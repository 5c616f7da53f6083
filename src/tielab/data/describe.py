"""What a corpus is: its splits, lines of them, and how many bytes a token of each vocabulary stands for.

Imports no torch.
"""

import hashlib
import itertools
from array import array
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tielab.data.budget import num_unused_ids
from tielab.data.corpus import find_source
from tielab.data.prepare import prepare, writing_to
from tielab.data.source import SPLITS, split_documents
from tielab.errors import RequestError

NUM_SAMPLE_LINES = 3


@dataclass
class SplitDescription:
    """The text of a split, as it is tokenized."""

    documents: int = 0
    words: int = 0
    """As white space separates them."""
    bytes: int = 0
    """Of UTF-8, with what ends the documents."""
    sha256: str = ""
    """Of those bytes."""
    in_train: int = 0
    """Documents of validation and test that train has as well; published splits may have some."""
    lines: list[str] = field(default_factory=list)
    """The first line of some documents, which their hashes choose; of few documents, further lines too."""


@dataclass
class VocabularyDescription:
    """What a tokenizer makes of the text."""

    name: str
    vocab_size: int | None = None
    """V; null where there is no such tokenizer."""
    bytes_per_token: float | None = None
    """Of the validation split."""
    train_tokens: int | None = None
    unused_ids: int | None = None
    """Ids that the training split never has."""
    embedding_parameters: int | None = None
    """V x D: what tying saves at the width that was asked for."""
    refusal: str | None = None
    """Why there is no such tokenizer."""


@dataclass
class CorpusDescription:
    """A corpus as it is prepared for training."""

    corpus: str
    document: str
    corpus_hash: str
    splits: dict[str, SplitDescription]
    vocabularies: list[VocabularyDescription] = field(default_factory=list)


def describe_corpus(data_config: dict[str, Any]) -> CorpusDescription:
    """The splits of a corpus, in one pass over its text; nothing is tokenized.

    Raises:
        RequestError: the text cannot be had.
    """
    source = find_source(data_config)
    corpus_hash = source.fingerprint()
    summaries = {name: _Summary() for name in SPLITS}
    # What is downloaded is kept in the cache.
    with writing_to(Path(data_config["cache_dir"]).expanduser()):
        for name, text in split_documents(source):
            summaries[name].add(text)
    splits = {name: summary.description() for name, summary in summaries.items()}
    trained_on = np.array(summaries["train"].keys)
    for name in ("validation", "test"):
        splits[name].in_train = int(np.isin(np.array(summaries[name].keys), trained_on).sum())
    return CorpusDescription(source.corpus, source.document, corpus_hash, splits)


class _Summary:
    """The text of a split, counted as it passes: eight bytes are kept of a document."""

    def __init__(self) -> None:
        self.keys = array("Q")
        """Of each document, from its hash."""
        self._split = SplitDescription()
        self._digest = hashlib.sha256()
        self._samples: list[tuple[int, list[str]]] = []

    def add(self, text: str) -> None:
        encoded = text.encode("utf-8")
        self._split.documents += 1
        self._split.words += len(text.split())
        self._split.bytes += len(encoded)
        self._digest.update(encoded)
        key = int.from_bytes(hashlib.sha256(encoded).digest()[:8], "big")
        self.keys.append(key)
        if len(self._samples) < NUM_SAMPLE_LINES or key < self._samples[-1][0]:
            self._samples = sorted([*self._samples, (key, _first_lines(text))])[:NUM_SAMPLE_LINES]

    def description(self) -> SplitDescription:
        # Line by line through the documents: the first of each, then the second of each.
        heads = itertools.zip_longest(*(lines for _, lines in self._samples))
        in_turn = [line for place in heads for line in place if line is not None]
        return replace(self._split, sha256=self._digest.hexdigest(), lines=in_turn[:NUM_SAMPLE_LINES])


def _first_lines(text: str) -> list[str]:
    return list(itertools.islice((line for line in text.splitlines() if line.strip()), NUM_SAMPLE_LINES))


def describe_vocabulary(name: str, data_config: dict[str, Any], embed_dim: int) -> VocabularyDescription:
    """What the tokenizer of a data config makes of its text; or why there is none."""
    try:
        prepared = prepare(data_config)
    except RequestError as error:
        return VocabularyDescription(name, refusal=str(error))
    vocab_size = prepared.tokenizer.vocab_size
    return VocabularyDescription(
        name,
        vocab_size=vocab_size,
        bytes_per_token=prepared.validation.num_bytes / prepared.validation.num_tokens,
        train_tokens=prepared.train.num_tokens,
        unused_ids=num_unused_ids(prepared.train, vocab_size),
        embedding_parameters=vocab_size * embed_dim,
    )
