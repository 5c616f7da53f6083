"""Text of a data set of the Hugging Face hub: a commit of it, downloaded once, given as documents.

Only files that hold rows are read, by ``datasets``, which runs no code of a data set. A folder with the
files of a data set serves as well, for machines without network. Imports neither torch nor ``datasets``.
"""

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tielab.data.corpus import DOCUMENT_END, SPLITS, Source, split_of
from tielab.data.download import FOLDER_NAME
from tielab.data.progress import followed
from tielab.errors import RequestError
from tielab.record import write_atomic, written_whole
from tielab.slots import alone

HUB_VERSION = 1
"""Raised whenever the documents made of the same rows change."""
READERS = ("arrow", "csv", "json", "parquet", "text")
"""Of ``datasets``: those for rows of plain values."""
SECONDS_TO_ANSWER = 10.0
HEADING = re.compile(r" = [^=].* = \n")
BLANK_LINE = " \n"
"""An empty line as WikiText's files have it; its rows on the hub are empty instead."""
DOCUMENTS_NAME = "documents.jsonl"
META_NAME = "meta.json"

Placed = tuple[str, str]
"""The split of a document, and the document."""


class HubSource(Source):
    """Documents of the published splits of a data set, those of train within a budget of bytes."""

    corpus = "hub"

    def __init__(self, hub_config: dict[str, Any], text_key: str, cache_dir: Path) -> None:
        self.hub = hub_config
        self.text_key = text_key
        self.cache_dir = cache_dir
        self.is_local = hub_config["name"].startswith(("/", ".", "~"))
        self.document = "article" if hub_config["lines"] else "row"
        # The lines of an article end it themselves: text as published, byte for byte.
        self.document_end = "" if hub_config["lines"] else DOCUMENT_END

    def fingerprint(self) -> str:
        """sha256 over the rules and the commit; of a folder, over the bytes of its files instead."""
        rules = {name: value for name, value in self.hub.items() if not (self.is_local and name == "name")}
        digest = hashlib.sha256(json.dumps([HUB_VERSION, rules, self.text_key], sort_keys=True).encode())
        if self.is_local:
            for path in self._local_files():
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()

    def is_here(self) -> bool:
        return self.is_local or is_stored(self._folder())

    def _folder(self) -> Path:
        """Where the documents of a data set of the hub are kept."""
        return self.cache_dir / FOLDER_NAME / f"hub-{self.fingerprint()[:20]}"

    def documents(self) -> Iterator[str]:
        for _, text in self.placed_documents():
            yield text

    def placed_documents(self) -> Iterator[Placed]:
        """Each document with its split: the published one; by the document's hash where none is published.

        Where only one of validation and test is published, its documents are shared out between the two.
        """
        for published, text in self._published() if self.is_local else self._stored():
            yield self._place(published, text), text

    def _place(self, published: str, text: str) -> str:
        missing = [name for name in SPLITS if self.hub[name] is None]
        if len(missing) == 2:
            return split_of(text)
        if missing and published != "train":
            digest = hashlib.sha256(text.encode("utf-8")).digest()
            return ("validation", "test")[digest[-1] % 2]
        return published

    def _published(self) -> Iterator[Placed]:
        """The documents of each published split, as the data set has them now."""
        for split in SPLITS:
            if self.hub[split] is not None:
                documents = self._documents_of(self.hub[split])
                max_bytes = self.hub["max_bytes"] if split == "train" else None
                num_documents = 0
                for text in within(documents, max_bytes):
                    num_documents += 1
                    yield split, text
                if not num_documents:
                    self._refuse_empty(split)

    def _refuse_empty(self, split: str) -> None:
        raise RequestError(
            f"data.hub: split {self.hub[split]} of {self.hub['name']} has no document"
            + ("" if self.hub["max_bytes"] is None else f" within max_bytes={self.hub['max_bytes']}")
            + "; name another split or allow more bytes"
        )

    def _documents_of(self, split: str) -> Iterator[str]:
        rows = self._rows(split)
        if self.hub["lines"]:
            return articles(rows)
        return (row.strip("\r\n") for row in rows if row.strip())

    def _rows(self, split: str) -> Iterator[str]:
        """The text of every row of a published split, streamed."""
        key = self.text_key
        with self._asking():
            for row in self._builder().as_streaming_dataset(split=split):
                if key not in row or not isinstance(row[key], str | None):
                    raise RequestError(
                        f"data.text_key={key}: the rows of {self.hub['name']} have no text there, found the "
                        f"columns {', '.join(row)}; name one that holds text"
                    )
                yield row[key] or ""

    def _builder(self) -> Any:
        """What reads the rows: one of the readers of ``datasets``, at the commit that was asked for.

        Raises:
            RequestError: it is not there, is at another commit, or is not a table with text.
        """
        datasets = library()
        name, revision = self.hub["name"], self.hub["revision"]
        path = str(Path(name).expanduser().resolve()) if self.is_local else name
        options = {} if self.is_local else {"revision": revision}
        with self._asking():
            builder = datasets.load_dataset_builder(path, self.hub["config"], **options)
        reader = type(builder).__module__.rpartition(".")[2]
        # Without network datasets takes whatever commit it still has.
        if not self.is_local and builder.hash != revision:
            raise RequestError(
                f"data.hub.revision={revision} of {name}: {self._unreachable('only another commit is here')}"
            )
        if reader not in READERS:
            raise RequestError(
                f"data.hub.name={name} holds {reader} files; choose a data set of text in "
                f"{', '.join(READERS)} files"
            )
        return builder

    def _local_files(self) -> list[Path]:
        files = self._builder().config.data_files or {}
        wanted = [self.hub[split] for split in SPLITS if self.hub[split] is not None]
        missing = [split for split in wanted if split not in files]
        if missing:
            self._refuse_split(missing[0], list(files))
        return [Path(file) for split in wanted for file in files[split]]

    def _refuse_split(self, split: str, found: list[str]) -> None:
        raise RequestError(
            f"data.hub: {self.hub['name']} has no split {split}, found {', '.join(map(str, found))}; "
            "name one of these"
        )

    def _stored(self) -> Iterator[Placed]:
        """The documents of a data set of the hub, from the file that they were downloaded into."""
        folder = self._folder()
        if not is_stored(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with alone(folder.with_name(folder.name + ".lock")):
                if not is_stored(folder):
                    self._reach()
                    self._download(folder)
        path = folder / DOCUMENTS_NAME
        self.num_bytes, self.num_bytes_read = path.stat().st_size, 0
        with path.open("rb") as file:
            for line in file:
                self.num_bytes_read += len(line)
                split, text = json.loads(line)
                yield split, text

    def _download(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        digest, label = hashlib.sha256(), f"downloading {self.hub['name']}"
        self.num_bytes, self.num_bytes_read = self.hub["max_bytes"], 0
        with written_whole(folder / DOCUMENTS_NAME) as file:
            for placed in followed(
                self._published(), label, lambda: self.num_bytes_read, lambda: self.num_bytes
            ):
                line = json.dumps(placed, ensure_ascii=False).encode("utf-8") + b"\n"
                file.write(line)
                digest.update(line)
                self.num_bytes_read += len(line)
        meta = {"hub": self.hub, "sha256": digest.hexdigest()}
        write_atomic(folder / META_NAME, json.dumps(meta, indent=1) + "\n")

    def _reach(self) -> None:
        """Raise RequestError within seconds if the hub cannot be reached or has no such commit.

        ``datasets`` itself would try for minutes.
        """
        library()
        from datasets import config
        from huggingface_hub import HfApi

        with self._asking():
            HfApi(endpoint=config.HF_ENDPOINT).dataset_info(
                self.hub["name"], revision=self.hub["revision"], timeout=SECONDS_TO_ANSWER
            )

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Make each of the many errors of the libraries one line."""
        try:
            with quiet():
                yield
        except RequestError:
            raise
        except Exception as error:
            raise RequestError(f"data.hub.name={self.hub['name']}: {self._reason(error)}") from None

    def _reason(self, error: Exception) -> str:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        said = " ".join(str(error).split()) or type(error).__name__
        if kinds & {"TransportError", "ConnectionError", "TimeoutError", "LocalEntryNotFoundError"}:
            return self._unreachable(said)
        if kinds & {"RepositoryNotFoundError", "RevisionNotFoundError", "GatedRepoError"}:
            return (
                f"no such data set or commit {self.hub['revision']} on the hub, or none you may read; "
                f"check the name and data.hub.revision, or log in with hf auth login"
            )
        return f"datasets cannot read it ({said[:300]}); check data.hub.config and its splits"

    def _unreachable(self, said: str) -> str:
        if self.is_local:
            return f"cannot be read ({said[:200]}); name a folder with the files of the data set"
        return (
            f"the hub cannot be reached ({said[:200]}); prepare the text on a machine with network "
            "(tielab data) and copy its data.cache_dir here, or set data.hub.name to a folder with the files"
        )


def articles(rows: Iterable[str]) -> Iterator[str]:
    """The lines of WikiText as articles: joined, they are the published file, byte for byte.

    An article begins with a blank line and its title. Section headings have more equals signs; a
    formula that looks like a title has text above it.
    """
    lines: list[str] = []
    for row in rows:
        line = row or BLANK_LINE
        if HEADING.fullmatch(line) and len(lines) > 1 and lines[-1] == BLANK_LINE:
            yield "".join(lines[:-1])
            lines = lines[-1:]
        lines.append(line)
    if lines:
        yield "".join(lines)


def within(documents: Iterable[str], max_bytes: int | None) -> Iterator[str]:
    """The first documents that have no more than ``max_bytes`` bytes of UTF-8 together; null: all."""
    num_bytes = 0
    for text in documents:
        num_bytes += len(text.encode("utf-8"))
        if max_bytes is not None and num_bytes > max_bytes:
            return
        yield text


def is_stored(folder: Path) -> bool:
    """Whether the documents in a folder are there and as they were downloaded."""
    try:
        meta = json.loads((folder / META_NAME).read_text(encoding="utf-8"))
        with (folder / DOCUMENTS_NAME).open("rb") as file:
            return bool(hashlib.file_digest(file, "sha256").hexdigest() == meta["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def library() -> Any:
    """The package ``datasets``.

    Raises:
        RequestError: it is not installed.
    """
    try:
        import datasets
    except ImportError:
        raise RequestError("data=hub needs the package datasets; pip install 'tielab[hub]'") from None
    return datasets


@contextmanager
def quiet() -> Iterator[None]:
    """Neither bars nor retries of the libraries between our own lines."""
    names = ("datasets", "huggingface_hub", "httpx", "httpx2", "fsspec")
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
