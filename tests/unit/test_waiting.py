import sys

import pytest

from tielab.waiting import busy


@pytest.mark.parametrize("terminal", [True, False])
def test_only_a_terminal_is_told_what_is_being_done(monkeypatch, capsys, terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with busy("comparing 3 runs"):
        pass
    out, err = capsys.readouterr()
    assert out == ""
    assert ("comparing 3 runs" in err) is terminal
    assert terminal or err == ""
