"""Sources of documents in files: local ones, those of installed packages, and one from the web.

Imports no torch.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tielab.data.articles import read_articles
from tielab.data.download import downloaded, format_at, place_of
from tielab.data.formats import format_of, raw_chunks, read_texts
from tielab.data.paths import refuse_file
from tielab.data.remembered import remembered
from tielab.data.source import Source, split_in_order
from tielab.errors import RequestError

CLEANING_VERSION = 1
"""Raised whenever the documents made of the same source bytes change."""


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
            articles = read_articles(path)
        except OSError as error:
            refuse_file(path, error)
        self._count(path.stat().st_size)  # read at once, unlike the others
        yield from articles


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
