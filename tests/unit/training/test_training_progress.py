import pytest

from fits import Fit
from tielab.sweep import MANIFEST_NAME
from tielab.training.progress import ProgressBar


@pytest.mark.parametrize(("in_sweep", "start"), [(True, "job 3: "), (False, "")])
def test_a_line_names_the_job_of_a_sweep(tmp_path, monkeypatch, capsys, in_sweep, start):
    folder = tmp_path / "3"
    folder.mkdir()
    if in_sweep:
        (tmp_path / MANIFEST_NAME).touch()
    monkeypatch.chdir(folder)
    Fit(2, extra=[ProgressBar(line_seconds=0)]).run()
    lines = [line for line in capsys.readouterr().err.splitlines() if "tokens/s" in line]
    assert lines[0].startswith(f"{start}32/64 tokens  loss ")
    assert all(line.startswith(start) for line in lines)
