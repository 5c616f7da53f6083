"""Text to token files, once: a cache keyed by content, verified whenever it is used.

An entry is a folder with ``train.bin``, ``validation.bin``, ``test.bin`` (raw little-endian ids),
``tokenizer.json`` and ``meta.json``. It is built aside and renamed into place under a lock, so
however many processes start at once, one builds and none sees half an entry. Imports no torch.
"""

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers

from tielab.data.build_tokenizer import build_tokenizer, tokenizer_files
from tielab.data.corpus import find_source
from tielab.data.encode import describe, write_splits
from tielab.data.progress import followed
from tielab.data.remembered import remembered
from tielab.data.source import SPLITS, Source, split_documents
from tielab.data.tokenizer import Tokenizer
from tielab.errors import RequestError
from tielab.slots import alone

FORMAT_VERSION = 2
"""Raised whenever an entry's files change for the same content."""
META_NAME = "meta.json"
TOKENIZER_NAME = "tokenizer.json"

log = logging.getLogger("tielab")


@dataclass(frozen=True)
class TokenSplit:
    """The token stream of one split: its documents one after the other, each ended by a blank line."""

    tokens: npt.NDArray[Any]
    """Memory-mapped ids, shape (num_tokens,), uint16 or uint32."""
    num_documents: int | None
    """Null for a part of a split: where documents begin is not kept."""
    num_scored_words: int | None
    """Whitespace-separated words behind the first token, which no window scores; null for a part."""
    num_tokens: int
    num_bytes: int
    """UTF-8 bytes of the text."""
    content_hash: str
    """sha256 of the ids and of the bytes each stands for."""

    def first(self, num_tokens: int, tokenizer: Tokenizer) -> "TokenSplit":
        """The first ``num_tokens`` tokens as a split of their own."""
        tokens = self.tokens[:num_tokens]
        described = describe(tokenizer, tokens)
        return TokenSplit(tokens=tokens, num_documents=None, num_scored_words=None, **described)

    def summary(self) -> dict[str, Any]:
        """Everything but the tokens, as plain values."""
        return {
            "num_documents": self.num_documents,
            "num_scored_words": self.num_scored_words,
            "num_tokens": self.num_tokens,
            "num_bytes": self.num_bytes,
            "content_hash": self.content_hash,
        }


@dataclass(frozen=True)
class Prepared:
    """A tokenized corpus."""

    corpus: str
    corpus_hash: str
    tokenizer: Tokenizer
    tokenizer_hash: str
    train: TokenSplit
    validation: TokenSplit
    test: TokenSplit

    def summary(self) -> dict[str, Any]:
        """What was prepared, as plain values for the record."""
        return {
            "corpus": self.corpus,
            "corpus_hash": self.corpus_hash,
            "tokenizer_hash": self.tokenizer_hash,
            "vocab_size": self.tokenizer.vocab_size,
            "bytes_per_token": self.validation.num_bytes / self.validation.num_tokens,
            "train": self.train.summary(),
            "validation": self.validation.summary(),
            "test": self.test.summary(),
        }


@dataclass(frozen=True)
class _Request:
    """What an entry is made from."""

    source: Source
    corpus_hash: str
    tokenizer_config: dict[str, Any]

    @property
    def label(self) -> str:
        """Such as ``wiki: bpe 4096``."""
        kind, vocab_size = self.tokenizer_config["kind"], self.tokenizer_config["vocab_size"]
        return f"{self.source.corpus}: {kind} {'' if vocab_size is None else vocab_size}".rstrip()


def prepare(data_config: dict[str, Any]) -> Prepared:
    """The tokenized corpus ``data_config`` asks for, from the cache if a sound entry is there.

    Raises:
        RequestError: text or tokenizer cannot be had as asked, or the cache cannot be written.
    """
    source = find_source(data_config)
    request = _Request(source, source.fingerprint(), data_config["tokenizer"])
    cache_dir = Path(data_config["cache_dir"]).expanduser()
    entry = cache_dir / _entry_name(request)
    prepared = _load(entry)
    if prepared is None:
        with writing_to(cache_dir):
            prepared = _build_once(entry, request)
    return prepared


def _entry_name(request: _Request) -> str:
    config = request.tokenizer_config
    kind = config["kind"]
    parts = {
        "format": FORMAT_VERSION,
        "corpus": request.corpus_hash,
        "kind": kind,
        "vocab_size": config["vocab_size"],
        "byte_fallback": config["byte_fallback"] if kind == "char" else None,
        "library": tokenizers.__version__ if kind in ("bpe", "file") else None,
        "files": [_file_hash(path) for path in tokenizer_files(config["path"])] if kind == "file" else [],
    }
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return f"{request.source.corpus}-{kind}-{key[:20]}"


def _file_hash(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RequestError(f"{path} cannot be read ({error.strerror}); check its permissions") from None


@contextmanager
def writing_to(cache_dir: Path) -> Iterator[None]:
    """Turn a failed write into a RequestError."""
    try:
        yield
    except OSError as error:
        raise RequestError(
            f"data.cache_dir={cache_dir}: cannot write the cache ({error.strerror or error}); "
            "free space there or set data.cache_dir to a folder you can write"
        ) from None


def _build_once(entry: Path, request: _Request) -> Prepared:
    entry.parent.mkdir(parents=True, exist_ok=True)
    with alone(entry.with_name(entry.name + ".lock")):
        prepared = _load(entry)
        if prepared is None:
            _remove_leftovers(entry)
            _build(entry, request)
            prepared = _load(entry)
        assert prepared is not None, f"{entry} was just written and does not verify"
        return prepared


def _remove_leftovers(entry: Path) -> None:
    """Delete an unsound entry and what crashed builds of it left; the lock is held, so nobody builds."""
    for folder in [entry, *entry.parent.glob(f".{entry.name}.*")]:
        if folder.is_dir():
            shutil.rmtree(folder)


def _build(entry: Path, request: _Request) -> None:
    log.info("tokenizing %s ...", request.label)
    # The library warns in every later forked worker unless this was decided before its first use.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    folder = Path(tempfile.mkdtemp(dir=entry.parent, prefix=f".{entry.name}."))
    try:
        meta = _write_entry(folder, request)
        folder.chmod(0o755)
        folder.rename(entry)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    num_tokens = sum(split["num_tokens"] for split in meta["splits"].values())
    log.info("tokenized %s: %s tokens", request.label, f"{num_tokens:,}")


def _write_entry(folder: Path, request: _Request) -> dict[str, Any]:
    """Fill a folder with an entry's files and return its meta data."""
    tokenizer = _tokenizer_for(request)
    dtype = "<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4"
    splits = write_splits(folder, _read(request, f"tokenizing {request.label}"), tokenizer, dtype)
    (folder / TOKENIZER_NAME).write_text(tokenizer.to_json(), encoding="utf-8")
    meta = {
        "corpus": request.source.corpus,
        "corpus_hash": request.corpus_hash,
        "tokenizer_hash": tokenizer.hash,
        "dtype": dtype,
        "splits": splits,
        "files": {path.name: _stamp(path) for path in sorted(folder.iterdir())},
    }
    sealed = {"sha256": _seal(meta), "meta": meta}
    (folder / META_NAME).write_text(json.dumps(sealed, indent=1) + "\n", encoding="utf-8")
    return meta


def _tokenizer_for(request: _Request) -> Tokenizer:
    documents = _read(request, f"reading for a tokenizer: {request.label}")
    return build_tokenizer(request.tokenizer_config, (text for name, text in documents if name == "train"))


def _read(request: _Request, label: str) -> Iterator[tuple[str, str]]:
    source = request.source
    return followed(split_documents(source), label, lambda: source.num_bytes_read, lambda: source.num_bytes)


def _stamp(path: Path) -> dict[str, Any]:
    return {"size": path.stat().st_size, "sha256": remembered([path], "sha256", lambda: _file_hash(path))}


def _seal(meta: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()


def _load(entry: Path) -> Prepared | None:
    """A cache entry if it is there and every byte is as it was written, else None.

    Of files larger than 256 MiB the bytes are looked at once on this machine, then their time of change.
    """
    try:
        sealed = json.loads((entry / META_NAME).read_text(encoding="utf-8"))
        meta = sealed["meta"]
        if _seal(meta) != sealed["sha256"]:
            return None
        if any(_stamp(entry / name) != stamp for name, stamp in meta["files"].items()):
            return None
        splits = {name: _open_split(entry, name, meta) for name in SPLITS}
        tokenizer = Tokenizer.from_json((entry / TOKENIZER_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Prepared(meta["corpus"], meta["corpus_hash"], tokenizer, meta["tokenizer_hash"], **splits)


def _open_split(entry: Path, name: str, meta: dict[str, Any]) -> TokenSplit:
    tokens = np.memmap(entry / f"{name}.bin", dtype=meta["dtype"], mode="r")
    return TokenSplit(tokens=tokens, **meta["splits"][name])
