import json
import os
import re
import shutil
from contextlib import nullcontext

import pytest

from outcomes import put_run
from report_records import make_record
from tielab.overview.entries import list_folders, run_entry
from tielab.overview.text import ago, duration, to_text
from tielab.record import METRICS_NAME

STATUSES = ["finished", "finished", "failed", "diverged", "killed", "waiting"]


def test_sweeps_and_runs_are_listed_newest_first(invoke, outputs):
    content = json.loads(invoke("ls", "--json").stdout)
    assert [run["folder"] for run in content["runs"]] == [
        "outputs/runs/2026-01-02_00-00-00-bbbbbb",
        "outputs/runs/2025-12-31_00-00-00-cccccc",
    ]
    (sweep,) = content["sweeps"]
    assert sweep["folder"] == "outputs/sweeps/2026-01-01_00-00-00-aaaaaa"
    assert sweep["counts"] == {"finished": 2, "failed": 1, "diverged": 1, "killed": 1, "waiting": 1}
    assert sweep["arms"] == ["tied", "untied"]
    assert (sweep["best_bits_per_byte"], sweep["best_arm"]) == (2.25, "untied")
    assert [job["status"] for job in sweep["jobs"]] == STATUSES


def test_a_sweep_lists_its_jobs_with_what_tells_them_apart(invoke, outputs):
    content = json.loads(invoke("ls", "outputs/sweeps/2026-01-01_00-00-00-aaaaaa", "--json").stdout)
    jobs = content["runs"]
    assert content["sweeps"] == []
    assert [job["status"] for job in jobs] == STATUSES
    assert [job["asked"] for job in jobs][::5] == ["model.tied=True seed=0", "model.tied=False seed=2"]
    assert [job["bits_per_byte"] for job in jobs] == [2.5, 2.25, None, None, None, None]
    assert (jobs[0]["arm"], jobs[0]["seed"], jobs[0]["vocab_size"], jobs[0]["embed_dim"]) == (
        "tied",
        "0",
        4096,
        128,
    )
    assert jobs[2]["reason"] == "ValueError: no\\x1b[2Jsuch thing"


def test_how_far_a_run_is_comes_from_its_metrics(invoke, outputs):
    """The last whole row counts; half a row is one that is being written."""
    sweep = next(outputs.glob("sweeps/*"))
    killed = run_entry(sweep / "4")
    assert (killed.tokens, killed.planned_tokens) == (250_000, 1_000_000)
    assert "250,000 of 1,000,000 (25 %)" in invoke("ls", sweep).stdout
    (sweep / "4" / METRICS_NAME).unlink()
    assert run_entry(sweep / "4").tokens is None


def test_what_cannot_be_read_is_an_entry_that_says_so(invoke, outputs):
    lines = invoke("ls").stdout.splitlines()
    (line,) = [line for line in lines if "cccccc" in line]
    assert "damaged" in line
    assert "record.json cannot be read" in line
    sweep = next(outputs.glob("sweeps/*"))
    (sweep / "sweep.jsonl").write_text("not a list\n")
    damaged = list_folders([outputs]).sweeps[0]
    assert "is not the list of a sweep" in damaged.reason
    assert damaged.counts["finished"] == 2
    assert "damaged: 2 finished" in invoke("ls").stdout


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe", b'{"request": ["a"]}\n{"name": 1, "overrides": [], "config_hash": "x"}\n',
        b'{"request": ["a"]}\n{"name": "0", "overrides": 7, "config_hash": "x"}\n', b"[" * 100_000 + b"\n",
    ],
)  # fmt: skip
def test_a_list_of_jobs_of_any_bytes_is_an_entry(invoke, outputs, content):
    (next(outputs.glob("sweeps/*")) / "sweep.jsonl").write_bytes(content)
    result = invoke("ls")
    assert result.exit_code == 0, result.exception
    assert "damaged: 2 finished" in result.stdout
    assert "is not the list of a sweep" in result.stdout


def test_what_may_not_be_looked_at_is_passed_by(invoke, outputs, monkeypatch):
    (outputs / "locked").symlink_to(outputs / "runs")

    def scandir(folder):
        entries = list(os_scandir(folder))
        return nullcontext([Locked(entry) if entry.name == "locked" else entry for entry in entries])

    class Locked:
        """A link through a folder that is closed to this user; root may look everywhere."""

        def __init__(self, entry):
            self.name, self.is_symlink = entry.name, entry.is_symlink

        def is_dir(self):
            raise PermissionError(13, "Permission denied")

    os_scandir = os.scandir
    monkeypatch.setattr(os, "scandir", scandir)
    assert len(json.loads(invoke("ls", "--json").stdout)["runs"]) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"config": []}, {"config": {"model": "tied"}}, {"tokens_seen": "many"}, {"started_at": 7},
        {"seed": None}, {"validation": {"bits_per_byte": "low"}}, {"seconds": [1]},
        {"error": {"type": 3}, "status": "failed"}, {"data": {"vocab_size": "\x1b[2J"}},
        {"started_at": "yesterday"},
    ],
)  # fmt: skip
def test_a_strangers_record_neither_breaks_the_list_nor_speaks_to_the_terminal(invoke, tmp_path, changes):
    record = make_record()
    for name, value in changes.items():
        setattr(record, name, value)
    put_run(tmp_path / "outputs" / "runs" / "strange", record)
    result = invoke("ls")
    assert result.exit_code == 0, result.exception
    assert "outputs/runs/strange" in result.stdout
    assert "\x1b" not in result.stdout


def test_a_pipe_has_one_plain_line_for_each_entry(invoke, outputs):
    lines = invoke("ls", "outputs/sweeps/2026-01-01_00-00-00-aaaaaa").stdout.splitlines()
    assert len(lines) == 7
    assert all("\x1b" not in line for line in lines)
    assert lines[0].split()[:3] == ["folder", "status", "begun"]


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_a_terminal_is_never_overrun_and_nothing_is_cut(outputs, width):
    listing = list_folders([outputs])
    text = re.sub(r"\x1b\[[0-9;]*m", "", to_text(listing, width=width, now=1767312000.0))
    folder = len(str(outputs)) + len("/sweeps/2026-01-01_00-00-00-aaaaaa")
    assert all(len(line) <= max(width, folder) for line in text.splitlines())
    words = text.split()
    for cell in ("2.2500", "untied", "4096", "128", "1,000,000", "damaged", "killed,"):
        assert cell in words, cell


def test_links_and_other_folders_are_passed_by(invoke, outputs):
    (outputs / "again").symlink_to(outputs)
    (outputs / "wandb" / "run").mkdir(parents=True)
    shutil.copytree(next(outputs.glob("runs/2026*")), outputs / "wandb" / "run" / "0")
    content = json.loads(invoke("ls", "--json").stdout)
    assert (len(content["sweeps"]), len(content["runs"])) == (1, 2)


def test_nothing_there_is_one_line(invoke, tmp_path):
    assert invoke("ls").stderr == "error: outputs: no such folder; name one, or train with python train.py\n"
    (tmp_path / "outputs").mkdir()
    result = invoke("ls")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: no sweep or run in outputs;")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.04 s"), (12.3, "12 s"), (61, "1 min"), (7200, "2.0 h"), (86400 * 12, "12 d")],
)
def test_durations_are_in_one_unit(seconds, text):
    assert duration(seconds) == text
    assert ago("1970-01-01T00:00:00+00:00", seconds) == f"{text} ago"
    assert ago(None, seconds) == ""
