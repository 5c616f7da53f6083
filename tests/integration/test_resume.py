"""A sweep and a run go on where they stopped, as if they never had."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import torch

import faults
from running import ROOT, config_of
from tielab import fork_server
from tielab import run as runs
from tielab.folder import State, reserve
from tielab.record import read_record
from tielab.resume import resume
from tielab.run import run_folder
from wandb_offline import read_offline_run, run_files

LONG = ("budget.tokens=32768", "budget.num_validations=4", "model.dropout=0.1")


def files(folder):
    """Every file below a folder but the lock of a dead process, with its time and size."""
    return {
        path.relative_to(folder): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


@pytest.fixture(scope="module")
def killed(tmp_path_factory, tiny, cache_dir):
    """A sweep of four jobs whose parent was killed in the second: (its command, its folder)."""
    cwd = tmp_path_factory.mktemp("killed")
    command = ["-m", "model.tied=true,false", "seed=0,1", *tiny, *LONG]
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *command],
        cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 300
    while not list(cwd.glob("outputs/sweeps/*/1/checkpoints/last.ckpt")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    (folder,) = (cwd / "outputs" / "sweeps").iterdir()
    deadline = time.monotonic() + 20
    while (
        folder / "1" / ".lock"
    ).exists() and time.monotonic() < deadline:  # its process goes with its parent
        size = (folder / "1" / "metrics.csv").stat().st_size
        time.sleep(0.5)
        if (folder / "1" / "metrics.csv").stat().st_size == size:
            break
    return command, folder


def copied(folder, tmp_path):
    """The sweep in a place of its own, times of its files kept."""
    place = tmp_path / "outputs" / "sweeps" / folder.name
    shutil.copytree(folder, place)
    return place


@pytest.mark.slow
def test_the_same_command_again_finishes_a_killed_sweep(killed, train, tielab, tmp_path):
    command, folder = killed
    by_command, by_name = copied(folder, tmp_path), tmp_path / "named"
    shutil.copytree(folder, by_name)
    (by_name / "1" / "record.json").write_text('{"half')  # the checkpoint is there all the same
    before = files(by_command / "0")
    done = train(*command, "resume=true")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in by_command.parent.iterdir()] == [folder.name]  # no second sweep
    assert files(by_command / "0") == before  # untouched
    assert "4 jobs: 1 finished, 1 killed, 2 not begun" in done.stdout
    assert done.stdout.count("\njob ") == 3
    records = [read_record(by_command / str(job)) for job in range(4)]
    assert all(record.finished for record in records)
    assert [(record.tied, record.seed) for record in records] == [
        (True, 0),
        (True, 1),
        (False, 0),
        (False, 1),
    ]
    assert records[1].resumed_at_step >= 64
    assert [attempt["status"] for attempt in records[1].attempts] == ["killed"]
    assert [len(record.attempts) for record in records] == [0, 1, 0, 0]
    assert "4 runs, all finished" in done.stdout
    table = json.loads(tielab("report", by_command, "--json").stdout)["rows"]
    assert [row["n"] for row in table] == [2, 2]

    # Once more: nothing is left to do.
    before = files(by_command)
    again = train(*command, "resume=true")
    assert (again.returncode, "4 jobs: 4 finished" in again.stdout) == (0, True), again.stderr
    assert files(by_command) == before

    # From the folder alone, the same comes out.
    done = tielab("resume", by_name)
    assert done.returncode == 0, done.stderr
    named = [read_record(by_name / str(job)) for job in range(4)]
    assert [record.weights_hash for record in named] == [record.weights_hash for record in records]
    assert files(by_name / "0") == files(by_command / "0")


def test_a_sweeps_folder_is_not_taken_for_another_one(killed, train, tiny, tmp_path):
    command, folder = killed
    place = copied(folder, tmp_path)
    before = files(place)
    where = f"hydra.sweep.dir={place.relative_to(tmp_path)}"
    refused = [
        (train(*command, where), "holds a sweep already; go on with it with resume=true"),
        (train("-m", "seed=7,8", *tiny, where, "resume=true"), "holds another sweep"),
    ]
    for done, message in refused:
        assert done.returncode == 2, done.stdout
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert files(place) == before


@pytest.fixture
def attempt(tmp_path, monkeypatch, cache_dir):
    """Run a folder whose process commits a fault; returns its record."""
    monkeypatch.setattr(fork_server, "run_forked", faults.misbehave)

    def run(folder, fault=""):
        monkeypatch.setenv(faults.FAULTS, json.dumps({"0": fault} if fault else {}))
        try:
            return run_folder(folder)
        finally:
            monkeypatch.delenv(faults.FAULTS)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_stopping_changes_no_bit(tied, dropout, num_workers, attempt, tiny, tmp_path, capfd):
    """Stopped in the middle of an epoch, and killed later on: the same batches, losses and weights."""
    config = config_of(
        *tiny, "budget.num_validations=3", "data.stride=8", f"model.tied={str(tied).lower()}",
        f"model.dropout={dropout}", f"data.num_workers={num_workers}",
    )  # fmt: skip
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    reserve(config, whole)
    reserve(config, stopped)
    expected = attempt(whole)
    assert expected.finished
    assert attempt(stopped, "terminate@7").status == "interrupted"
    assert read_record(stopped).status == "interrupted"
    assert max(faults.seen(stopped)) == 7
    assert attempt(stopped, "kill@25").status == "failed"  # the last checkpoint is of step 21
    record = attempt(stopped)
    assert record.finished, record.error
    assert record.resumed_at_step == 21
    assert [earlier["status"] for earlier in record.attempts] == ["interrupted", "failed"]
    assert faults.seen(stopped) == faults.seen(whole)
    assert sorted(faults.seen(whole)) == list(range(1, 33))
    for name in (
        "weights_hash",
        "validation",
        "best_validation",
        "initial_loss",
        "train_loss",
        "tokens_seen",
    ):
        assert getattr(record, name) == getattr(expected, name), name
    timed = ["seconds", "tokens_per_second"]
    tables = [
        pd.read_csv(folder / "metrics.csv", float_precision="round_trip").drop(columns=timed)
        for folder in (stopped, whole)
    ]
    pd.testing.assert_frame_equal(*tables)
    assert tables[0]["step"].is_monotonic_increasing
    assert pd.read_csv(stopped / "metrics.csv")["seconds"].is_monotonic_increasing
    assert record.seconds > record.seconds_by_phase["train"] > 0


def test_a_run_goes_on_by_its_command_and_by_its_name(attempt, train, tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = tmp_path / "outputs" / "runs" / "first"
    reserve(config_of(*tiny), first)
    assert attempt(first, "terminate@7").status == "interrupted"
    copy = tmp_path / "copy"
    shutil.copytree(first, copy)
    assert resume(copy) == 0
    done = train(*tiny, "resume=true", "logger=csv")
    assert done.returncode == 0, done.stderr
    assert "outputs/runs/first (was interrupted, goes on)" in done.stdout
    assert [path.name for path in first.parent.iterdir()] == ["first"]
    assert read_record(first).weights_hash == read_record(copy).weights_hash
    assert read_record(first).resumed_at_step == 7
    before = files(first)
    again = train(*tiny, "resume=true")
    assert (again.returncode, "finished already" in again.stdout) == (0, True)
    assert files(first) == before
    other = train(*tiny, "seed=1", "resume=true")  # of which there is none: it is begun
    assert other.returncode == 0
    assert len(list(first.parent.iterdir())) == 2


def test_the_best_checkpoint_stays_the_best(attempt, train, tiny, tmp_path, monkeypatch):
    """Of a run that gets worse after its warm-up, resumed by a relative path, moved, and in a new folder."""
    worsening = (
        *tiny, "budget.num_validations=8", "schedule.warmup_fraction=0.9", "optimizer.learning_rate=3",
        "optimizer.gradient_clip_norm=null",
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    reserve(config_of(*worsening), folder)
    assert attempt(folder, "terminate@25").status == "interrupted"
    shutil.copytree(folder, tmp_path / "elsewhere" / "moved")
    done = train(*worsening, "resume_from=run/checkpoints/last.ckpt", "hydra.run.dir=new")
    assert done.returncode == 0, done.stderr
    for place in ("run", "elsewhere/moved"):
        assert resume(Path(place)) == 0
    for place in ("run", "elsewhere/moved", "new"):
        record = read_record(tmp_path / place)
        best = torch.load(tmp_path / place / "checkpoints" / "best.ckpt", weights_only=True)
        assert best["tielab"]["tokens_seen"] == record.best_validation["tokens_seen"] < 25 * 128, place
        assert record.finished


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_processes_start(number, tiny, tmp_path):
    """The fork server imports for seconds before there is anybody to stop."""
    command = [sys.executable, str(ROOT / "train.py"), "-m", "seed=0,1", *tiny]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not (found := list(tmp_path.glob("outputs/sweeps/*/0/record.json"))):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.3)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "2 jobs: 1 interrupted, 1 not begun" in out
    record = read_record(found[0].parent)
    assert (record.status, record.tokens_seen) == ("interrupted", None)
    assert not (found[0].parent / ".lock").exists()
    assert resume(found[0].parent) == 0


def test_other_code_is_told(attempt, tiny, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "run"
    reserve(config_of(*tiny), folder)
    first = attempt(folder, "terminate@7")
    monkeypatch.setattr(runs, "code_hash", lambda: "another")
    record = attempt(folder)
    assert f"goes on with other code (was {first.code_hash}, is now another)" in capsys.readouterr().err
    assert (record.code_hash, record.attempts[0]["code_hash"]) == ("another", first.code_hash)


def test_a_strangers_folder_leads_nowhere_else(attempt, tielab, tiny, tmp_path):
    """A link would be written through, and a job's name could be a path; what it says is no terminal code."""
    mine = tmp_path / "mine"
    reserve(config_of(*tiny), mine / "0")
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "sweep.jsonl").write_text(
        '{"request": ["seed=0"]}\n{"name": "../mine/0", "overrides": [], "config_hash": "x"}\n'
    )
    done = tielab("resume", strange)
    assert (done.returncode, "is not the list of a sweep" in done.stderr) == (2, True)
    assert sorted(path.name for path in (mine / "0").iterdir()) == ["run.yaml"]

    assert attempt(mine / "0", "raise").status == "failed"
    (tmp_path / "precious").write_text("precious")
    (mine / "0" / "run.log").unlink()
    (mine / "0" / "run.log").symlink_to(tmp_path / "precious")
    done = tielab("resume", mine / "0")
    assert (done.returncode, "run.log is a link" in done.stderr) == (2, True)
    assert (tmp_path / "precious").read_text() == "precious"

    record = read_record(mine / "0")
    record.error["message"] = "\x1b[31mred\x07"
    assert State("failed", record).reason == "ValueError: \\x1b[31mred\\x07"


def test_a_run_that_goes_on_is_one_wandb_run(attempt, tiny, tmp_path, monkeypatch):
    """Two offline folders of one id, which `wandb sync` puts together; what was uploaded twice is equal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")  # whatever another test left there
    folder = tmp_path / "outputs" / "runs" / "x"
    reserve(config_of(*tiny, "logger=wandb"), folder)
    assert attempt(folder, "terminate@20").status == "interrupted"
    record = attempt(folder)
    assert record.finished, record.error
    parts = [read_offline_run(path) for path in sorted(run_files(tmp_path / "outputs"))]
    assert [part.run_id for part in parts] == [record.run_id] * 2
    assert [part.exit_code for part in parts] == [130, 0]
    steps = [[row["trainer/global_step"] for row in part.history if "train/loss" in row] for part in parts]
    assert steps == [[1, 10, 20], [30, 32]]
    assert parts[1].summary["validation"]["bits_per_byte"] == record.validation["bits_per_byte"]


def test_what_was_changed_or_damaged_is_not_gone_on_with(attempt, tielab, tiny, tmp_path):
    folder = tmp_path / "run"
    reserve(config_of(*tiny), folder)
    assert attempt(folder, "terminate@7").status == "interrupted"
    text = (folder / "run.yaml").read_text()
    (folder / "run.yaml").write_text(text.replace("learning_rate: 0.003", "learning_rate: 0.004"))
    changed = tielab("resume", folder)
    assert changed.returncode == 2
    assert "optimizer.learning_rate was 0.003, is now 0.004" in changed.stderr
    (folder / "run.yaml").write_text(text)
    checkpoint = folder / "checkpoints" / "last.ckpt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    damaged = tielab("resume", folder)
    assert damaged.returncode == 2
    assert "is truncated or not a checkpoint" in damaged.stderr
    record = read_record(folder)
    assert record.status == "failed"
    assert [earlier["status"] for earlier in record.attempts] == ["interrupted"]
    checkpoint.unlink()
    assert tielab("resume", folder).returncode == 0  # anew
    assert read_record(folder).resumed_at_step is None
    nothing = tielab("resume", tmp_path)
    assert (nothing.returncode, "neither a run nor a sweep" in nothing.stderr) == (2, True)


def test_a_run_is_run_by_one_process_at_a_time(attempt, tiny, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    reserve(config_of(*tiny), folder)
    script = (
        "import sys, time; from pathlib import Path; from tielab.run import hold\n"
        "with hold(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE, env=os.environ, text=True
    )
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(ValueError, match="is being run by"):
        run_folder(folder)
    holder.kill()  # the kernel lets go
    holder.wait()
    assert attempt(folder).finished
