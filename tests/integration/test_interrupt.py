"""Ctrl-C leaves a record that says so and a checkpoint from which the run goes on exactly."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from running import ROOT
from tielab.models.accounting import tensors_hash
from tielab.record import read_record


def start(tmp_path, *arguments):
    return subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *arguments],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for_rows(tmp_path, process, num_rows):
    """Until some metrics.csv has so many rows."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        for path in tmp_path.glob("outputs/*/**/metrics.csv"):
            if len(path.read_text().splitlines()) > num_rows:
                return path.parent
        time.sleep(0.02)
    raise AssertionError(f"no metrics: {process.communicate()}")


def children_of(pid):
    found = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True).stdout
    return [line for line in found.splitlines()[1:] if line.split()[1] == str(pid)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_sweep_and_exact_continuation(number, train, tiny, tmp_path):
    long = (*tiny, "budget.tokens=65536", "budget.num_validations=1", "model.dropout=0.1")
    process = start(tmp_path, "-m", "seed=0,1", *long)
    folder = wait_for_rows(tmp_path, process, 3)
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, (out, err)
    assert not children_of(process.pid)
    record = read_record(folder)
    assert record.status == "interrupted"
    assert record.tokens_seen < 65536
    assert "Traceback" not in err
    assert "interrupted" in out  # the table's notes
    sweep = folder.parent.relative_to(tmp_path)
    assert "2 jobs: 1 interrupted, 1 not begun" in out
    assert f"to go on: tielab resume {sweep}" in out
    assert not (folder.parent / "1" / "record.json").exists()  # the sweep stopped

    # Going on from the checkpoint equals never having stopped.
    if number == signal.SIGINT:
        checkpoint = folder / "checkpoints" / "last.ckpt"
        resumed = train(*long, f"resume_from={checkpoint}", "output_dir=resumed")
        whole = train(*long, "output_dir=whole")
        assert (resumed.returncode, whole.returncode) == (0, 0), resumed.stderr + whole.stderr
        records = [read_record(next((tmp_path / name / "runs").iterdir())) for name in ("resumed", "whole")]
        assert records[0].weights_hash == records[1].weights_hash
        assert records[0].validation == records[1].validation
        assert records[0].initial_loss == records[1].initial_loss
        assert records[0].train_loss == records[1].train_loss


@pytest.mark.distributed
@pytest.mark.parametrize("trainer", ["ddp_cpu", "fsdp_cpu"])
def test_two_processes_stop_together(trainer, tiny, tmp_path):
    long = (
        *tiny,
        "budget.tokens=1310720",
        "budget.num_validations=1",
        f"trainer={trainer}",
        "trainer.devices=2",
    )
    process = start(tmp_path, *long)
    folder = wait_for_rows(tmp_path, process, 3)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, (out, err)
    record = read_record(folder)
    assert record.status == "interrupted"
    assert record.error["type"] == "RunInterruptedError"
    checkpoint = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    weights = {name.removeprefix("model."): tensor for name, tensor in checkpoint["state_dict"].items()}
    assert tensors_hash(weights.items()) == record.weights_hash


def test_a_killed_parent_takes_its_children_along(tiny, tmp_path):
    process = start(tmp_path, *tiny, "budget.tokens=655360")
    folder = wait_for_rows(tmp_path, process, 2)
    process.kill()
    # The pipes close when the last process that holds them has ended.
    process.communicate(timeout=20)
    assert read_record(folder).status == "running"  # nobody was left to say otherwise
