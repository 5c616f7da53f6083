"""A data set as the library ``datasets`` reads it: its rows, at a commit or in a folder, and its refusals.

``datasets`` runs no code of a data set, and only its readers for rows of plain values are used. Imports
neither torch nor ``datasets``.
"""

import itertools
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tielab.data.formats import MAX_DOCUMENT_BYTES
from tielab.data.source import SPLITS
from tielab.errors import RequestError

READERS = ("arrow", "csv", "json", "parquet", "text")
"""Of ``datasets``: those for rows of plain values."""
SECONDS_TO_ANSWER = 10.0


class DataSet:
    """What a request for a data set names: one of the hub at a commit, or a folder with such files."""

    def __init__(self, hub_config: dict[str, Any], text_key: str) -> None:
        self.config = hub_config
        self.text_key = text_key
        self.is_local = hub_config["name"].startswith(("/", ".", "~"))

    def rows(self, split: str) -> Iterator[str]:
        """The text of every row of a published split, streamed."""
        key = self.text_key
        with self._asking():
            for row in self._builder().as_streaming_dataset(split=split):
                if key not in row or not isinstance(row[key], str | None):
                    raise RequestError(
                        f"data.text_key={key}: the rows of {self.config['name']} have no text there, found "
                        f"the columns {', '.join(row)}; name one that holds text"
                    )
                text = row[key] or ""
                if len(text) > MAX_DOCUMENT_BYTES:
                    raise RequestError(
                        f"{self.config['name']} has a row larger than {MAX_DOCUMENT_BYTES >> 20} MiB, the "
                        "largest document; choose a data set with smaller ones"
                    )
                yield text

    def _builder(self) -> Any:
        """What reads the rows: one of the readers of ``datasets``, at the commit that was asked for.

        Raises:
            RequestError: it is not there, is at another commit, or is not a table with text.
        """
        datasets = library()
        name, revision = self.config["name"], self.config["revision"]
        path = str(Path(name).expanduser().resolve()) if self.is_local else name
        options = {} if self.is_local else {"revision": revision}
        with self._asking():
            if self.is_local:
                self._check_asks_nobody(Path(path))
            builder = datasets.load_dataset_builder(path, self.config["config"], **options)
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
        files = itertools.chain(*(builder.config.data_files or {}).values())
        root = f"{path}/" if self.is_local else f"hf:/datasets/{name}@{revision}/"
        self._check_inside(map(str, files), root)
        return builder

    def _check_asks_nobody(self, folder: Path) -> None:
        """Refuse a folder whose description names addresses: ``datasets`` would ask there while it looks."""
        from huggingface_hub import DatasetCard

        described: list[Any] = []
        if (folder / "README.md").is_file():
            described.append(DatasetCard.load(folder / "README.md").data.get("configs"))
        if (folder / ".huggingface.yaml").is_file():
            described.append(yaml.safe_load((folder / ".huggingface.yaml").read_text(encoding="utf-8")))
        if "://" in repr(described):
            raise RequestError(
                f"data.hub.name={self.config['name']} has a description that names files elsewhere; put the "
                "files into the folder and take the addresses out of it"
            )

    def _check_inside(self, files: Iterable[str], root: str) -> None:
        """Refuse what a data set names and does not hold: no commit pins it, and nobody asked to read it."""
        outside = next((file for file in files if not os.path.normpath(file).startswith(root)), None)
        if outside is not None:
            raise RequestError(
                f"data.hub.name={self.config['name']} names {outside}, which is not of the data "
                "set; name that file itself"
            )

    def local_files(self) -> list[Path]:
        files = self._builder().config.data_files or {}
        wanted = [self.config[split] for split in SPLITS if self.config[split] is not None]
        missing = [split for split in wanted if split not in files]
        if missing:
            self._refuse_split(missing[0], list(files))
        return [Path(file) for split in wanted for file in files[split]]

    def _refuse_split(self, split: str, found: list[str]) -> None:
        raise RequestError(
            f"data.hub: {self.config['name']} has no split {split}, found {', '.join(map(str, found))}; "
            "name one of these"
        )

    def check_reachable(self) -> None:
        """Raise RequestError within seconds if the hub cannot be reached or has no such commit.

        ``datasets`` itself would try for minutes.
        """
        library()
        from datasets import config
        from huggingface_hub import HfApi

        with self._asking():
            HfApi(endpoint=config.HF_ENDPOINT).dataset_info(
                self.config["name"], revision=self.config["revision"], timeout=SECONDS_TO_ANSWER
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
            raise RequestError(f"data.hub.name={self.config['name']}: {self._reason(error)}") from None

    def _reason(self, error: Exception) -> str:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        said = " ".join(str(error).split()) or type(error).__name__
        if kinds & {"TransportError", "ConnectionError", "TimeoutError", "LocalEntryNotFoundError"}:
            return self._unreachable(said)
        if kinds & {"RepositoryNotFoundError", "RevisionNotFoundError", "GatedRepoError"}:
            return (
                f"no such data set or commit {self.config['revision']} on the hub, or none you may read; "
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
