"""Which documents a data set of the hub has: from files in its layout, and from a stand-in for the hub."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hub_server import COMMIT, NAME, HubServer
from tielab.data import data_set
from tielab.data.corpus import find_source
from tielab.data.hub import within
from tielab.data.prepare import prepare
from tielab.data.source import SPLITS, split_documents
from tielab.data.wikitext import articles
from tielab.errors import RequestError
from tielab.trust import check_address

MakeConfig = Callable[..., dict[str, Any]]
LINES = [
    *("", " = First = \n", "", " Text of the first . \n", "", " = = Part = = \n", "", " More @-@ text . \n"),
    *(" = x and y = \n", " is a formula . \n", "", "", " = Second = \n", "", " The second . \n", ""),
]
"""Two articles as the rows of WikiText are: empty where the published file has a space and a newline."""
PUBLISHED = "".join(row or " \n" for row in LINES)


def write_rows(path: Path, rows: list[str | None], **columns: list[Any]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    texts = pa.array(rows, pa.string())
    parquet.write_table(pa.table({"text": texts, **columns}), path, row_group_size=50)


@pytest.fixture(scope="module")
def wikitext(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in the layout of Salesforce/wikitext, with one configuration."""
    folder = tmp_path_factory.mktemp("hub") / "wikitext"
    lines = ["configs:", "- config_name: wikitext-2-raw-v1", "  data_files:"]
    for number, split in enumerate(SPLITS, start=1):
        rows = [row.replace("text", f"text {split}") for row in LINES] * number
        write_rows(folder / "wikitext-2-raw-v1" / f"{split}-00000-of-00001.parquet", rows)
        lines += [f"  - split: {split}", f"    path: wikitext-2-raw-v1/{split}-*"]
    (folder / "README.md").write_text("\n".join(["---", *lines, "---", ""]))
    return folder


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in the layout of TinyStories: two files of train, one of validation, no test."""
    folder = tmp_path_factory.mktemp("hub") / "stories"
    for part in range(2):
        rows = [f"\nStory {part} {i}.\n\nOnce there was a cat {i}.\n" for i in range(500)]
        write_rows(
            folder / "data" / f"train-0000{part}-of-00002.parquet", [*rows, " \n", None], score=[1] * 502
        )
    rows = [*(f"Story {i} to judge by." for i in range(60)), "Story 0 0.\n\nOnce there was a cat 0."]
    write_rows(folder / "data" / "validation-00000-of-00001.parquet", rows)
    return folder


@pytest.fixture
def hub_config(make_config: MakeConfig) -> Callable[..., dict[str, Any]]:
    def make(name: Path | str, **hub: Any) -> dict[str, Any]:
        nothing = {"config": None, "revision": None, "validation": None, "test": None}
        asked = {"name": str(name), "train": "train", "lines": False, "max_bytes": None, **nothing, **hub}
        return make_config(corpus="hub", hub=asked)

    return make


WIKITEXT = {"config": "wikitext-2-raw-v1", "validation": "validation", "test": "test", "lines": True}


def placed(config: dict[str, Any]) -> dict[str, list[str]]:
    """The documents of each split, as they are tokenized."""
    found: dict[str, list[str]] = {name: [] for name in SPLITS}
    for name, text in split_documents(find_source(config)):
        found[name].append(text)
    return found


def refusal(config: dict[str, Any]) -> str:
    with pytest.raises(RequestError) as error:
        placed(config)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_wikitext_is_the_published_text_byte_for_byte_an_article_a_document(
    wikitext: Path, hub_config: MakeConfig
) -> None:
    found = placed(hub_config(wikitext, **WIKITEXT))
    assert {name: len(texts) for name, texts in found.items()} == {"train": 2, "validation": 4, "test": 6}
    for number, name in enumerate(SPLITS, start=1):
        assert "".join(found[name]) == PUBLISHED.replace("text", f"text {name}") * number
        assert all(text.startswith((" \n = First = \n", " \n = Second = \n")) for text in found[name])


def test_a_formula_that_looks_like_a_title_begins_no_article() -> None:
    assert [text.split("\n")[1] for text in articles(LINES)] == [" = First = ", " = Second = "]


def test_a_row_is_a_document_and_the_published_splits_stay_apart(
    stories: Path, hub_config: MakeConfig
) -> None:
    found = placed(hub_config(stories, validation="validation"))
    assert len(found["train"]) == 1000
    assert found["train"][0] == "Story 0 0.\n\nOnce there was a cat 0.\n\n"
    assert sorted(len(found[name]) for name in ("validation", "test")) != [0, 61]
    assert len(found["validation"]) + len(found["test"]) == 61
    assert all("judge" not in text for text in found["train"])


def test_a_lone_split_is_shared_out_by_hash(stories: Path, hub_config: MakeConfig) -> None:
    found = placed(hub_config(stories))
    assert sum(map(len, found.values())) == 1000
    assert 0 < len(found["validation"]) < 100
    assert 0 < len(found["test"]) < 100


def test_a_budget_takes_the_first_documents_that_fit(stories: Path, hub_config: MakeConfig) -> None:
    whole = placed(hub_config(stories, validation="validation"))
    some = placed(hub_config(stories, validation="validation", max_bytes=1000))
    texts = [text.strip("\n") for text in some["train"]]
    assert some["train"] == whole["train"][: len(texts)]
    assert 1000 - 40 < sum(len(text.encode()) for text in texts) <= 1000
    assert (some["validation"], some["test"]) == (whole["validation"], whole["test"])
    assert "has no document within max_bytes=5" in refusal(hub_config(stories, max_bytes=5))


def test_a_budget_counts_bytes_and_reads_no_further() -> None:
    unread = iter(["é", "é", "é", "never"])
    assert list(within(unread, 5)) == ["é", "é"]
    assert list(unread) == ["never"]


def test_the_fingerprint_tells_data_and_budget_apart_and_nothing_else(
    stories: Path, wikitext: Path, hub_config: MakeConfig, tmp_path: Path
) -> None:
    def of(name: Path | str, **hub: Any) -> str:
        return find_source(hub_config(name, **hub)).fingerprint()

    copy = tmp_path / "elsewhere"
    write_rows(copy / "data" / "train-00000-of-00001.parquet", ["one", "two"])
    first = of(copy)
    os.utime(copy / "data" / "train-00000-of-00001.parquet", (0, 0))
    moved = copy.rename(tmp_path / "moved")
    assert of(moved) == first
    write_rows(moved / "data" / "train-00000-of-00001.parquet", ["one", "tw0"])
    assert of(moved) != first
    variants = [{}, {"max_bytes": 9}, {"max_bytes": 10}, {"validation": "validation"}]
    assert len({of(stories, **variant) for variant in variants}) == len(variants)
    commits = [of(NAME, revision=commit) for commit in ("a" * 40, "b" * 40)]
    assert commits[0] == of(NAME, revision="a" * 40) != commits[1]


@pytest.mark.parametrize(
    ("hub", "said"),
    [
        ({"train": "nope"}, "has no split nope, found train, validation"),
        ({"config": "nope"}, "BuilderConfig 'nope' not found"),
    ],
)
def test_what_the_files_lack_is_one_line(
    hub: dict[str, Any], said: str, stories: Path, hub_config: MakeConfig
) -> None:
    source = find_source(hub_config(stories, **hub))
    with pytest.raises(RequestError, match=said) as error:
        source.fingerprint()
    assert "\n" not in str(error.value)


def test_a_column_without_text_is_refused(stories: Path, hub_config: MakeConfig) -> None:
    assert "found the columns text" in refusal(hub_config(stories) | {"text_key": "story"})
    assert "data.text_key=score: the rows of" in refusal(hub_config(stories) | {"text_key": "score"})


def test_a_script_of_a_data_set_is_never_run(stories: Path, hub_config: MakeConfig, tmp_path: Path) -> None:
    folder = tmp_path / "trap"
    folder.mkdir()
    (folder / "trap.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    assert "scripts are no longer supported" in refusal(hub_config(folder))
    assert not (tmp_path / "ran").exists()


def test_a_file_that_is_not_of_the_data_set_is_refused(hub_config: MakeConfig, tmp_path: Path) -> None:
    folder, path = tmp_path / "rows", tmp_path / "rows.jsonl"
    folder.mkdir()
    path.write_text('{"text": "private"}\n')
    (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: default\n  data_files: {path}\n---\n")
    assert f"names {path}, which is not of the data set" in refusal(hub_config(folder))


@pytest.mark.parametrize("name", ["README.md", ".huggingface.yaml"])
def test_a_folder_that_names_an_address_asks_nobody(
    name: str, server: HubServer, hub_config: MakeConfig, tmp_path: Path
) -> None:
    text = f"configs:\n- config_name: default\n  data_files: {server.address}/rows.txt\n"
    (tmp_path / name).write_text(f"---\n{text}---\n" if name == "README.md" else text)
    assert "has a description that names files elsewhere" in refusal(hub_config(tmp_path))
    assert server.asked == []


def test_a_row_that_does_not_fit_into_memory_is_refused(
    stories: Path, hub_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_set, "MAX_DOCUMENT_BYTES", 20)
    assert "has a row larger than" in refusal(hub_config(stories))


@pytest.fixture
def hub_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes an address that of the hub, for what is asked before a download, and network is allowed."""
    import datasets
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return lambda address: monkeypatch.setattr(datasets.config, "HF_ENDPOINT", address)


def test_a_silent_hub_is_given_up_within_the_time_to_answer(
    hub_config: MakeConfig, hub_at: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_set, "SECONDS_TO_ANSWER", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        hub_at(f"http://127.0.0.1:{silent.getsockname()[1]}")
        said = refusal(hub_config(NAME, revision=COMMIT))
    assert "the hub cannot be reached (timed out); prepare the text on a machine with network" in said


def test_without_the_library_the_extra_is_named(
    stories: Path, hub_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install 'tielab[hub]'" in refusal(hub_config(stories))


def test_a_strangers_config_downloads_nothing_unasked(
    stories: Path, hub_config: MakeConfig, tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match=f"would download data.hub.name={NAME}, which was not done here"):
        check_address(hub_config(NAME, revision=COMMIT), tmp_path / "run.yaml")
    check_address(hub_config(stories), tmp_path / "run.yaml")


DOWNLOAD_PROGRAM = """
import json, sys
from tielab.data.corpus import find_source
from tielab.errors import RequestError
source = find_source(json.loads(sys.argv[1]))
try:
    assert not source.is_here()
    print(json.dumps([*source.placed_documents()]))
    assert source.is_here()
except RequestError as error:
    print("refused:", error)
"""


@pytest.fixture
def server(stories: Path) -> Iterator[HubServer]:
    server = HubServer(stories)
    yield server
    server.shutdown()


def download(config: dict[str, Any], server: HubServer, home: Path) -> str:
    """What a process prints for which the server is the hub."""
    hub = {"HF_ENDPOINT": server.address, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-c", DOWNLOAD_PROGRAM, json.dumps(config)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **hub}, timeout=150)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_data_set_is_streamed_within_its_budget_once_and_kept(
    server: HubServer, stories: Path, hub_config: MakeConfig, tmp_path: Path
) -> None:
    config = hub_config(NAME, revision=COMMIT, validation="validation", max_bytes=1000)
    found = json.loads(download(config, server, tmp_path))
    local = find_source(hub_config(stories, validation="validation", max_bytes=1000)).placed_documents()
    assert [tuple(pair) for pair in found] == list(local)
    assert not any("train-00001" in asked for asked in server.asked)
    num_asked = len(server.asked)
    source = find_source(config)
    assert source.is_here()
    assert list(source.placed_documents()) == [tuple(pair) for pair in found]
    check_address(config, tmp_path / "run.yaml")
    assert prepare(config).train.num_documents == sum(split == "train" for split, _ in found)
    assert len(server.asked) == num_asked
    (kept,) = Path(config["cache_dir"]).glob("downloads/hub-*/documents.jsonl")
    kept.write_bytes(kept.read_bytes()[:-1])
    assert not source.is_here()


def test_a_commit_that_the_hub_lacks_is_refused(
    server: HubServer, hub_config: MakeConfig, hub_at: Callable[[str], None]
) -> None:
    hub_at(server.address)
    said = refusal(hub_config(NAME, revision="f" * 40))
    assert said.startswith(f"data.hub.name={NAME}: no such data set or commit {'f' * 40}")
