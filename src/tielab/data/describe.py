"""What a corpus is: its splits, lines of them, and how many bytes a token of each vocabulary stands for.

Imports no torch.
"""

import hashlib
import itertools
from dataclasses import dataclass, field
from typing import Any

from tielab.data.budget import num_unused_ids
from tielab.data.corpus import SPLITS, find_source, split_documents
from tielab.data.prepare import prepare
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
    splits = {name: SplitDescription() for name in SPLITS}
    digests = {name: hashlib.sha256() for name in SPLITS}
    keys: dict[str, list[int]] = {name: [] for name in SPLITS}
    samples: dict[str, list[tuple[int, list[str]]]] = {name: [] for name in SPLITS}
    for name, text in split_documents(source):
        split, encoded = splits[name], text.encode("utf-8")
        split.documents += 1
        split.words += len(text.split())
        split.bytes += len(encoded)
        digests[name].update(encoded)
        key = int.from_bytes(hashlib.sha256(encoded).digest()[:8], "big")
        keys[name].append(key)
        samples[name] = sorted([*samples[name], (key, _first_lines(text))])[:NUM_SAMPLE_LINES]
    trained_on = set(keys["train"])
    for name, split in splits.items():
        split.sha256 = digests[name].hexdigest()
        heads = [lines for _, lines in samples[name]]
        # Line by line through the documents: the first of each, then the second of each.
        in_turn = [line for place in itertools.zip_longest(*heads) for line in place if line is not None]
        split.lines = in_turn[:NUM_SAMPLE_LINES]
        split.in_train = 0 if name == "train" else sum(key in trained_on for key in keys[name])
    return CorpusDescription(source.corpus, source.document, corpus_hash, splits)


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
