"""Text of a data set of the Hugging Face hub: a commit of it, downloaded once, given as documents.

Only files that hold rows are read, by ``datasets``, which runs no code of a data set. A folder with the
files of a data set serves as well, for machines without network. Imports neither torch nor ``datasets``.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tielab.data.data_set import DataSet
from tielab.data.download import FOLDER_NAME
from tielab.data.progress import followed
from tielab.data.remembered import hash_of_file
from tielab.data.source import DOCUMENT_END, SPLITS, Source, split_of
from tielab.data.wikitext import articles
from tielab.errors import RequestError
from tielab.record import write_atomic, written_whole
from tielab.slots import alone

HUB_VERSION = 1
"""Raised whenever the documents made of the same rows change."""
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
        self.data_set = DataSet(hub_config, text_key)
        self.is_local = self.data_set.is_local
        self.document = "article" if hub_config["lines"] else "row"
        # The lines of an article end it themselves: text as published, byte for byte.
        self.document_end = "" if hub_config["lines"] else DOCUMENT_END

    def fingerprint(self) -> str:
        """sha256 over the rules and the commit; of a folder, over the bytes of its files instead."""
        rules = {name: value for name, value in self.hub.items() if not (self.is_local and name == "name")}
        digest = hashlib.sha256(json.dumps([HUB_VERSION, rules, self.text_key], sort_keys=True).encode())
        if self.is_local:
            for path in self.data_set.local_files():
                digest.update(bytes.fromhex(hash_of_file(path)))
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
        rows = self.data_set.rows(split)
        if self.hub["lines"]:
            return articles(rows)
        return (row.strip("\r\n") for row in rows if row.strip())

    def _stored(self) -> Iterator[Placed]:
        """The documents of a data set of the hub, from the file that they were downloaded into."""
        folder = self._folder()
        if not is_stored(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with alone(folder.with_name(folder.name + ".lock")):
                if not is_stored(folder):
                    self.data_set.check_reachable()
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
