"""``tielab data``: what it says of a corpus is so, and a model trains on what the hub has."""

import hashlib
import json
from pathlib import Path

import pytest

from running import TINY
from tielab.data import shelf
from tielab.data.shelf import config_with, corpora
from tielab.errors import RequestError
from tielab.record import read_record


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """Paragraphs: 400 numbered ones, and one with an escape sequence."""
    path = tmp_path / "book.txt"
    paragraphs = [f"The number {i} is\nnext." for i in range(400)]
    path.write_text("\n\n".join([*paragraphs, "\x1b[31mred"]), encoding="utf-8")
    return path


def test_splits_words_and_hashes_are_those_of_the_text(book: Path, tielab) -> None:
    done = tielab("data", "text", f"data.paths=[{book}]", "--vocab", "byte,bpe300,bpe9999", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    splits = said["splits"]
    assert sum(split["documents"] for split in splits.values()) == 401
    assert sum(split["words"] for split in splits.values()) == 400 * 5 + 1
    byte, bpe, too_many = said["vocabularies"]
    assert byte["train_tokens"] == splits["train"]["bytes"]
    assert byte["embedding_parameters"] == 256 * 128
    assert bpe["bytes_per_token"] > byte["bytes_per_token"] == 1
    assert too_many["vocab_size"] is None
    assert "yields at most" in too_many["refusal"]


def test_a_single_text_has_the_hash_of_its_file(book: Path, tielab) -> None:
    done = tielab("data", "text", f"data.paths=[{book}]", "data.split=order", "--vocab", "", "--json")
    train = json.loads(done.stdout)["splits"]["train"]
    content = book.read_bytes()[: train["bytes"]]
    assert train["sha256"] == hashlib.sha256(content).hexdigest()
    assert train["lines"] == ["The number 0 is", "next.", "The number 1 is"]


def test_lines_say_nothing_to_a_terminal(tmp_path: Path, tielab) -> None:
    path = tmp_path / "red.txt"
    path.write_text("\n\n".join(f"\x1b[31mred {i}" for i in range(200)), encoding="utf-8")
    done = tielab("data", "text", f"data.paths=[{path}]", "--vocab", "byte")
    assert "\\x1b[31mred" in done.stdout
    assert "\x1b" not in done.stdout


def test_the_list_has_every_option_with_licence_and_whether_it_is_here(
    tielab, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = {row["name"]: row for row in json.loads(tielab("data", "--json").stdout)}
    assert {
        "code",
        "hub",
        "text",
        "tinyshakespeare",
        "tinystories",
        "url",
        "wiki",
        "wikitext2",
    } <= listed.keys()
    assert listed["wiki"]["licence"] == "CC BY-SA 4.0"
    assert (listed["wiki"]["is_here"], listed["wikitext2"]["is_here"]) == (True, False)
    monkeypatch.setattr(shelf, "is_here", lambda name: None)  # a second for each
    assert "wikitext2" in tielab("data").stdout


def test_every_option_composes_and_names_what_it_lacks() -> None:
    for corpus in corpora():
        if corpus.name == "hub":
            with pytest.raises(RequestError, match=r"data\.hub\.name has no value"):
                config_with(corpus.name, "byte", [])
        else:
            assert config_with(corpus.name, "bpe777", [])["data"]["tokenizer"]["vocab_size"] == 777


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["wki"], "no corpus wki; there are code,"),
        (["wiki", "modle.x=1"], "unknown key modle"),
        (["wiki", "data.hub.name=a/b"], "needs data=url or data=hub"),
        (["text"], "data=text needs files"),
    ],
)
def test_a_wrong_request_is_one_line(arguments: list[str], said: str, tielab) -> None:
    done = tielab("data", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_model_trains_on_a_data_set_of_the_hub(tmp_path: Path, train) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    rows = [f"Once there was a cat that had {i} mice." for i in range(600)]
    for split, some in {"train": rows[:400], "validation": rows[400:500], "test": rows[500:]}.items():
        folder = tmp_path / "cats" / "data"
        folder.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table({"text": some, "id": some}), folder / f"{split}-00000-of-00001.parquet")
    hub = ["data=hub", "data.hub.name=./cats", "data.hub.validation=validation", "data.hub.test=test"]
    done = train(*(key for key in TINY if key != "data=text"), *hub)
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "outputs" / "runs").iterdir()
    record = read_record(run)
    assert (record.status, record.data["corpus"]) == ("finished", "hub")
    assert [record.data[name]["num_documents"] for name in ("train", "validation", "test")] == [400, 100, 100]
