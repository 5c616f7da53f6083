"""A hash is computed once for large files that nothing touches, and anew after any write."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tielab.data import prepare as prepare_module
from tielab.data import remembered as module
from tielab.data.prepare import prepare
from tielab.data.remembered import remembered
from tielab.errors import RequestError


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is remembered yet, and a file is large and settled at once."""
    monkeypatch.setattr(module, "slots_folder", lambda: tmp_path)
    monkeypatch.setattr(module, "REMEMBERED_FROM", 0)
    monkeypatch.setattr(module, "SETTLED_SECONDS", 0.0)


def flip_unseen(path: Path) -> None:
    """Change a byte and put size and time of modification back."""
    times = path.stat()
    time.sleep(0.05)  # the file system's clock has ticks
    with path.open("r+b") as file:
        file.seek(times.st_size // 2)
        byte = file.read(1)[0]
        file.seek(times.st_size // 2)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_untouched_files_are_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    one.write_text("a"), two.write_text("b")
    results = iter(["first", "second", "third", "fourth", "fifth"])

    def ask(*files: Path, rules: str = "rules") -> str:
        time.sleep(0.01)
        return remembered(files, rules, lambda: next(results))

    assert [ask(one, two), ask(one, two)] == ["first", "first"]
    assert ask(one, two, rules="other") == "second"
    flip_unseen(two)
    assert [ask(one, two), ask(one, two)] == ["third", "third"]
    monkeypatch.setattr(module, "REMEMBERED_FROM", 3)
    assert [ask(one, two), ask(one, two)] == ["fourth", "fifth"]


def test_a_file_that_has_just_changed_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SETTLED_SECONDS", 60.0)
    (tmp_path / "1").write_text("a")
    results = iter(["first", "second"])
    assert [remembered([tmp_path / "1"], "", lambda: next(results)) for _ in "12"] == ["first", "second"]


def test_a_hash_that_cannot_be_read_is_computed(tmp_path: Path) -> None:
    """As where somebody empties the folder meanwhile."""
    file = tmp_path / "1"
    file.write_text("a")
    time.sleep(0.01)
    assert remembered([file], "", lambda: "first") == "first"
    (kept,) = (tmp_path / "hashes").iterdir()
    kept.unlink()
    kept.symlink_to("/proc/self/mem")
    assert remembered([file], "", lambda: "second") == "second"


def test_without_a_folder_nothing_is_remembered_and_all_is_found(
    text_file: Path, make_config: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = prepare(make_config(text_file)).summary()
    (tokens,) = Path(make_config()["cache_dir"]).glob("*/train.bin")

    def refuse() -> Path:
        raise RequestError("it belongs to somebody else")

    for folder in (refuse, lambda: text_file):
        monkeypatch.setattr(module, "slots_folder", folder)
        before = tokens.stat().st_ino
        assert prepare(make_config(text_file)).summary() == summary
        assert tokens.stat().st_ino == before, "it was built anew"


def test_a_flipped_byte_of_a_remembered_entry_is_noticed(
    text_file: Path, make_config: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(text_file)
    summary = prepare(config).summary()
    time.sleep(0.05)
    assert prepare(config).summary() == summary
    with monkeypatch.context() as patch:
        patch.setattr(prepare_module, "_file_hash", lambda path: pytest.fail(f"{path} was hashed again"))
        assert prepare(config).summary() == summary
    (tokens,) = Path(config["cache_dir"]).glob("*/train.bin")
    before = tokens.read_bytes()
    flip_unseen(tokens)
    assert tokens.read_bytes() != before
    assert prepare(config).summary() == summary
    assert tokens.read_bytes() == before
