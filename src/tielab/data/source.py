"""A source of documents, its fingerprint, and the split of each document. Imports no torch.

A document goes to a split by its own hash, before anything is tokenized, so no window and no
merge rule ever sees text of two splits.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator

from tielab.errors import RequestError

SPLITS = ("train", "validation", "test")
DOCUMENT_END = "\n\n"
"""Follows every document in the token stream: a document ends with a blank line."""


class Source(ABC):
    """Documents in an order of their own, streamed, and an identity for all of them."""

    corpus: str
    """A value of ``data.corpus``."""
    document: str
    """What one of them is: article, file, paragraph or row."""
    document_end: str = DOCUMENT_END
    """Follows every document; empty where the documents joined are the text as published."""
    num_bytes: int | None = None
    """Raw bytes that ``documents`` reads; null where nobody knows before."""
    num_bytes_read: int = 0
    """How many of them it has read so far."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Identity of the documents: sha256 over raw bytes and rules, in memory that does not grow with them.

        Raises:
            RequestError: what it takes cannot be read.
        """

    @abstractmethod
    def documents(self) -> Iterator[str]:
        """The documents in source order, each not blank and without newlines around it.

        In memory that grows with the largest document, not with their number. Can be called again.

        Raises:
            RequestError: one cannot be read, or there is none.
        """

    def placed_documents(self) -> Iterator[tuple[str, str]]:
        """Each document with its split before it; here the one that its own text decides."""
        for text in self.documents():
            yield split_of(text), text

    def is_here(self) -> bool:
        """Whether the documents can be read without network."""
        return True


def split_of(text: str) -> str:
    """The split of a document, which its own text decides: one in 20 validation, one in 20 test.

    Equal documents share a split.
    """
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return {0: "validation", 1: "test"}.get(int.from_bytes(digest[-4:], "big") % 20, "train")


def split_in_order(text: str) -> Iterator[tuple[str, str]]:
    """The first 90 % of a text's characters for train, the next 5 % for validation, the rest for test."""
    first = int(len(text) * 0.9)
    second = first + (len(text) - first) // 2
    parts = (text[:first], text[first:second], text[second:])
    yield from ((name, part) for name, part in zip(SPLITS, parts, strict=True) if part)


def split_documents(source: Source) -> Iterator[tuple[str, str]]:
    """Each document of a source as it is tokenized, with a blank line behind it, and its split before it.

    Files and paragraphs keep the order of the source: neighbours in a book or a package belong
    together, and a window that spans two of them still reads on.

    Raises:
        RequestError: a split has no document.
    """
    counts = dict.fromkeys(SPLITS, 0)
    for name, text in source.placed_documents():
        counts[name] += 1
        yield name, text + source.document_end
    for name, count in counts.items():
        if not count:
            finer = "set data.document=paragraph or give" if source.document == "file" else "give"
            raise RequestError(
                f"the {name} split is empty: documents ({source.document}s) are shared out by hash, and "
                f"{sum(counts.values())} are too few; {finer} more text"
            )
