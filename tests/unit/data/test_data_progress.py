"""Long reading says how far it is, short reading nothing."""

import logging
from collections.abc import Iterator

import pytest

from tielab.data import progress
from tielab.data.progress import followed


class Clock:
    """Each item takes a second; a megabyte of eight is read for each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0
        monkeypatch.setattr(progress.time, "monotonic", lambda: float(self.seconds))

    def items(self, count: int) -> Iterator[int]:
        for number in range(count):
            self.seconds += 1
            yield number

    def read(self) -> int:
        return self.seconds * 1_000_000


@pytest.mark.parametrize(
    ("total", "lines"),
    [
        (
            8_000_000,
            ["reading: 3 of 8 MB, 1.0 MB/s, 0:00:05 left", "reading: 8 of 8 MB, 1.0 MB/s, 0:00:00 left"],
        ),
        (None, ["reading: 3 MB, 1.0 MB/s", "reading: 8 MB, 1.0 MB/s"]),
    ],
)
def test_a_line_after_some_seconds_in_a_pipe(
    total: int | None, lines: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tielab")
    clock = Clock(monkeypatch)
    assert list(followed(clock.items(2), "reading", clock.read, lambda: total)) == [0, 1]
    assert not caplog.records
    clock.seconds = 0
    assert list(followed(clock.items(8), "reading", clock.read, lambda: total)) == list(range(8))
    assert [record.getMessage() for record in caplog.records] == lines


def test_a_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    clock = Clock(monkeypatch)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert list(followed(clock.items(6), "reading", clock.read, lambda: 8_000_000)) == list(range(6))
    shown = capfd.readouterr()
    assert not shown.out
    assert "reading" in shown.err
    assert "5.0/8.0 MB" in shown.err
