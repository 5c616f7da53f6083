"""Folders as training leaves them, from hand-made records."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from outcomes import put_run
from report_records import make_record
from tielab.record import METRICS_NAME
from tielab.sweep import MANIFEST_NAME

RunTielab = Callable[..., Result]


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunTielab:
    """``tielab ARGUMENTS`` in an empty folder."""
    from tielab.cli import main

    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, list(map(str, arguments)), prog_name="tielab")


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    """A sweep of six jobs that have come as far as jobs can, and two single runs, of which one is damaged."""
    sweep = tmp_path / "outputs" / "sweeps" / "2026-01-01_00-00-00-aaaaaa"
    error = {
        "type": "ValueError",
        "message": "no\x1b[2Jsuch thing",
        "traceback": "Traceback\n  line\nValueError",
    }
    diverged = {"type": "DivergedError", "message": "the validation loss is nan", "traceback": ""}
    put_run(sweep / "0", make_record(bits_per_byte=2.5))
    put_run(sweep / "1", make_record(tied=False, bits_per_byte=2.25))
    put_run(sweep / "2", make_record(status="failed", seed=1, error=error, validation=None))
    put_run(sweep / "3", make_record(status="failed", tied=False, seed=1, error=diverged, validation=None))
    running = make_record(status="running", seed=2, validation=None, tokens_seen=None)
    put_run(sweep / "4", running)  # and its process has gone
    rows = "step,tokens,train/loss\n1,1000,4.0\n2,2000,3.0\n3,250000,2.0\n4,9,1"
    (sweep / "4" / METRICS_NAME).write_text(rows)
    put_run(sweep / "5", None)
    seeds = (0, 0, 1, 1, 2, 2)
    jobs = [
        {
            "name": str(i),
            "overrides": ["vocab=bpe", f"model.tied={i % 2 == 0}", f"seed={seed}"],
            "config_hash": "x",
        }
        for i, seed in enumerate(seeds)
    ]
    lines = [{"request": ["model.tied=true,false", "seed=0,1,2"]}, *jobs]
    (sweep / MANIFEST_NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))
    runs = tmp_path / "outputs" / "runs"
    put_run(runs / "2026-01-02_00-00-00-bbbbbb", make_record(started_at="2026-01-02T00:00:00+00:00"))
    damaged = put_run(runs / "2025-12-31_00-00-00-cccccc", make_record())
    (damaged / "record.json").write_text('{"schema_version": 1, ')
    os.utime(damaged, (1, 1))
    return tmp_path / "outputs"
