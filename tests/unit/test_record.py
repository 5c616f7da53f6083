"""Records are written whole or not at all, and refused when they are not ours."""

import json
import os

import pytest

from tielab.errors import RequestError
from tielab.record import RECORD_NAME, Record, read_record, write_atomic, write_record


def record(**changes):
    fields = {
        "run_id": "tied-1",
        "status": "finished",
        "config": {"seed": 0},
        "config_hash": "ab",
        "tied": True,
        "seed": 0,
    }
    return Record(**(fields | changes))


def test_round_trip(tmp_path):
    write_record(tmp_path, record(validation={"nats": 0.1 + 0.2}))
    assert read_record(tmp_path) == record(validation={"nats": 0.1 + 0.2})
    assert read_record(tmp_path).finished
    assert [path.name for path in tmp_path.iterdir()] == [RECORD_NAME]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no record.json there"),
        ('{"status": "fini', "is not JSON"),
        ("[]", "schema_version None"),
        ('{"schema_version": 99}', "schema_version 99, this version reads 1"),
        ('{"schema_version": 1}', "is not a record"),
    ],
)
def test_refused(text, message, tmp_path):
    if text is not None:
        (tmp_path / RECORD_NAME).write_text(text)
    with pytest.raises(RequestError, match=message) as error:
        read_record(tmp_path)
    assert "\n" not in str(error.value)


def test_keys_of_a_later_minor_version_are_skipped(tmp_path):
    write_record(tmp_path, record())
    path = tmp_path / RECORD_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), "new": 1}))
    assert read_record(tmp_path) == record()


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomic(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
