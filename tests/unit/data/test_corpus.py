"""Which documents a corpus has, in which split and order, and what is refused."""

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tielab.data.corpus import find_source
from tielab.data.files import CodeSource
from tielab.data.source import SPLITS, split_documents
from tielab.errors import RequestError

MakeConfig = Callable[..., dict[str, Any]]


def documents_of(config: dict[str, Any]) -> list[str]:
    return list(find_source(config).documents())


def fingerprint_of(config: dict[str, Any]) -> str:
    return find_source(config).fingerprint()


def splits_of(config: dict[str, Any]) -> dict[str, list[str]]:
    """The documents of each split, without the blank line behind each."""
    splits: dict[str, list[str]] = {name: [] for name in SPLITS}
    for name, text in split_documents(find_source(config)):
        assert text.endswith("\n\n")
        splits[name].append(text[:-2])
    return splits


def all_of(splits: dict[str, list[str]]) -> list[str]:
    return [text for members in splits.values() for text in members]


def refusal(config: dict[str, Any]) -> str:
    """The one-line message with which a config is refused."""
    with pytest.raises(RequestError) as error:
        splits_of(config)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files b.txt, a/c.md, an empty one and hidden ones."""
    (tmp_path / "texts" / "a").mkdir(parents=True)
    (tmp_path / "texts" / ".git").mkdir()
    for name, text in {"b.txt": "b\n", "a/c.md": "c\n\nd", ".x": "no", ".git/y": "no", "a/empty": ""}.items():
        (tmp_path / "texts" / name).write_text(text)
    return tmp_path / "texts"


def test_a_folder_gives_all_its_visible_files_in_path_order(folder: Path, make_config: MakeConfig) -> None:
    assert documents_of(make_config(folder)) == ["c\n\nd", "b"]


def test_a_glob_gives_what_it_matches(folder: Path, make_config: MakeConfig) -> None:
    assert documents_of(make_config(folder / "*.txt")) == ["b"]
    assert documents_of(make_config(folder / "**" / "*.md", document="paragraph")) == ["c", "d"]


def test_a_file_named_twice_is_read_once(folder: Path, make_config: MakeConfig) -> None:
    assert documents_of(make_config(folder / "b.txt", folder, folder / "*.txt")) == ["c\n\nd", "b"]


def test_relative_paths_are_found(
    folder: Path, make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert documents_of(make_config(Path("a"), document="file")) == ["c\n\nd"]


def test_a_lone_file_is_split_at_blank_lines_unless_told_otherwise(
    tmp_path: Path, make_config: MakeConfig
) -> None:
    path = tmp_path / "one.txt"
    path.write_bytes(b"one\ntwo\r\n\r\nthree\n \t\n\n  four\n\n")
    assert documents_of(make_config(path)) == ["one\ntwo", "three", "  four"]
    assert documents_of(make_config(path, document="file")) == ["one\ntwo\r\n\r\nthree\n \t\n\n  four"]


def test_an_empty_file_is_refused_by_name(tmp_path: Path, make_config: MakeConfig) -> None:
    (tmp_path / "empty.txt").touch()
    assert "empty.txt is an empty file" in refusal(make_config(tmp_path / "empty.txt"))
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "empty").touch()
    assert "only holds no file with text" in refusal(make_config(tmp_path / "only"))


def test_blank_text_is_refused(tmp_path: Path, make_config: MakeConfig) -> None:
    (tmp_path / "blank.txt").write_text("\n \n\n")
    assert "blank lines only" in refusal(make_config(tmp_path / "blank.txt"))


@pytest.mark.parametrize("name", ["missing.txt", "*.missing"])
def test_a_path_without_files_is_refused_by_name(name: str, tmp_path: Path, make_config: MakeConfig) -> None:
    assert f"{tmp_path / name}: nothing there" in refusal(make_config(tmp_path / name))


def test_a_file_that_is_not_utf8_is_refused_with_the_offset(tmp_path: Path, make_config: MakeConfig) -> None:
    (tmp_path / "latin.txt").write_bytes("abc é".encode("latin-1"))
    assert "latin.txt is not UTF-8 at byte offset 4 (0xe9)" in refusal(make_config(tmp_path / "latin.txt"))


@pytest.mark.parametrize("locked", ["file", "folder", "folder below"])
def test_what_may_not_be_read_is_refused(
    locked: str, tmp_path: Path, make_config: MakeConfig, ordinary_user: AbstractContextManager[None]
) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "f.txt").write_text("text")
    (tmp_path / "outer" / "g.txt").write_text("text")
    closed = {"file": inner / "f.txt", "folder": inner, "folder below": inner}[locked]
    asked = {"file": inner / "f.txt", "folder": inner, "folder below": tmp_path / "outer"}[locked]
    closed.chmod(0)
    try:
        with ordinary_user:
            assert f"{closed} cannot be read (Permission denied)" in refusal(make_config(asked))
    finally:
        closed.chmod(0o755)


def test_documents_are_split_by_their_own_hash(text_file: Path, make_config: MakeConfig) -> None:
    splits = splits_of(make_config(text_file))
    remainders = {"validation": {0}, "test": {1}, "train": set(range(2, 20))}
    for name in SPLITS:
        numbers = {int(hashlib.sha256(text.encode()).hexdigest()[-8:], 16) % 20 for text in splits[name]}
        assert numbers <= remainders[name]
    assert sorted(all_of(splits)) == sorted(documents_of(make_config(text_file)))


def test_local_text_keeps_its_order_in_a_split(text_file: Path, make_config: MakeConfig) -> None:
    documents = documents_of(make_config(text_file))
    for members in splits_of(make_config(text_file)).values():
        assert members == [text for text in documents if text in set(members)]


def test_an_empty_split_is_refused_with_the_count_and_a_remedy(
    text_file: Path, make_config: MakeConfig
) -> None:
    message = refusal(make_config(text_file, document="file"))
    assert "and 1 are too few" in message
    assert "data.document=paragraph" in message


def test_fingerprint_follows_content_and_rules(tmp_path: Path, make_config: MakeConfig) -> None:
    one, two = tmp_path / "1.txt", tmp_path / "2.txt"
    one.write_text("ab"), two.write_text("c")
    before = fingerprint_of(make_config(one, two))
    assert before == "9215d293d1d4cd45b2cff2e7f8f4c0d09736594d18cf5b915ec70c1434ba9aeb"
    assert before == fingerprint_of(make_config(two, one))
    assert before != fingerprint_of(make_config(one, two, document="paragraph"))
    assert before == fingerprint_of(make_config(one, two, document="file"))
    one.write_text("a"), two.write_text("bc")
    assert before != fingerprint_of(make_config(one, two))


def test_fingerprint_follows_the_version_of_the_package(text_file: Path) -> None:
    old, new = (CodeSource("code", "file", [text_file], version=version) for version in ("1.13", "1.14"))
    assert old.fingerprint() != new.fingerprint()


def test_the_encyclopedia_is_the_one_we_measured(make_config: MakeConfig) -> None:
    # The corpus_hash of every published record.
    published = "c697885164097e1f4af568ba0b62d7051f04cfde4d92ddccc2ab4dea6e9597d3"
    assert fingerprint_of(make_config(corpus="wiki")) == published
    splits = splits_of(make_config(corpus="wiki"))
    assert {name: len(members) for name, members in splits.items()} == {
        "train": 8795,
        "validation": 476,
        "test": 521,
    }
    texts = all_of(splits)
    assert len(set(texts)) == len(texts), "a document in two splits"
    assert sum(len(text.encode()) for text in splits["validation"]) == 233_377
    digest = hashlib.sha256("\n\n".join(splits["validation"]).encode()).hexdigest()
    assert digest == "8ccfe62f03363935619c5b1148d9677e7cc71ce8a41abe6803affbd0c8cb7b25"


def test_the_encyclopedia_is_clean_and_in_hash_order(make_config: MakeConfig) -> None:
    for members in splits_of(make_config(corpus="wiki")).values():
        hashes = [hashlib.sha256(text.encode()).hexdigest() for text in members]
        assert hashes == sorted(hashes)
        assert min(map(len, members)) >= 80
        for text in members:
            assert not any(odd in text for odd in ("\u00a0", "\u200b", "\u2060", "  ", " , "))


def test_the_source_of_sympy_is_a_corpus_without_duplicates(make_config: MakeConfig) -> None:
    splits = splits_of(make_config(corpus="code"))
    texts = all_of(splits)
    assert len(texts) > 1000
    assert len(set(texts)) == len(texts)
    assert all(text.strip() for text in texts)
    assert any("class Symbol(" in text for text in texts)


def test_one_text_is_cut_in_order_character_for_character(tmp_path: Path, make_config: MakeConfig) -> None:
    text = "".join(f"{number:03} é\n\n" for number in range(143)) + "\n"
    path = tmp_path / "one.txt"
    path.write_bytes(text.encode())
    config = make_config(path, split="order")
    found = list(split_documents(find_source(config)))
    assert found == [("train", text[:901]), ("validation", text[901:951]), ("test", text[951:])]
    assert find_source(config).fingerprint() != find_source(make_config(path)).fingerprint()


def test_several_texts_are_not_cut_in_order(folder: Path, make_config: MakeConfig) -> None:
    assert "data.split=order is for one plain text, found 2 files" in refusal(
        make_config(folder, split="order")
    )
