from collections.abc import Callable
from pathlib import Path

import pytest

from tielab.record import Record, write_record


@pytest.fixture
def write_run(tmp_path: Path) -> Callable[..., Path]:
    """Write a record into a new folder below the test's own."""

    def write(name: str, record: Record) -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        write_record(folder, record)
        return folder

    return write
