"""Processes that take turns: only steps wholly inside a turn are counted, and nothing is left behind."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from benchmarks.arms import read_nanogpt, read_stamps
from benchmarks.turns import MIN_STEPS, DiedError, Turns, tree, without_pause

STEP_SECONDS = 0.05
TRAINER = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
for step in range(10_000):
    print(f"step {{step}} {{time.perf_counter():.6f}}", flush=True)
    time.sleep({STEP_SECONDS})
"""


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


def started(folder, code):
    return Turns([sys.executable, "-c", code], os.environ, folder, read_stamps)


def test_a_pause_is_in_no_step(tmp_path):
    with started(tmp_path, TRAINER) as turns:
        turns.warm_up(2)
        pause = 2.0
        time.sleep(pause)
        seconds = turns.turn(0.0)
        assert len(seconds) >= MIN_STEPS
        assert max(seconds) < pause


def test_the_whole_tree_stops_and_ends(tmp_path):
    with started(tmp_path, TRAINER) as turns:
        turns.warm_up(2)
        pids = tree(turns.pid)
        assert len(pids) == 2
        time.sleep(0.1)
        assert {state_of(pid) for pid in pids} == {"T"}
    time.sleep(0.1)
    assert not any(Path(f"/proc/{pid}").exists() and state_of(pid) != "Z" for pid in pids)


def test_an_early_death_says_its_last_lines(tmp_path):
    with started(tmp_path, "print('first'); raise SystemExit('no such key')") as turns:  # noqa: SIM117
        with pytest.raises(DiedError, match=r"exit status 1: first / no such key|no such key"):
            turns.warm_up(1)


@pytest.mark.parametrize("seconds", [[9.0, 0.1, 0.2], [0.1, 9.0, 0.2]])
def test_the_pause_may_fall_between_the_clock_and_the_line(seconds):
    assert without_pause(seconds) == [0.1, 0.2]


def test_a_line_that_is_being_written_is_no_step(tmp_path):
    lines = ["iter 0: loss 1.0, time 10.00ms, mfu 1.0%\n", "iter 1: loss 1.0, time 20.00ms, mfu 1.0%\n"]
    (tmp_path / "output.txt").write_text("".join(lines) + "iter 2: loss 1.0, time 3", encoding="utf-8")
    assert read_nanogpt(tmp_path) == [0.01, 0.02]


def test_sigkill_reaches_a_stopped_process(tmp_path):
    turns = started(tmp_path, TRAINER)
    turns.warm_up(2)
    turns.send(signal.SIGSTOP)
    turns.__exit__()
    with pytest.raises(DiedError, match="exit status -9"):
        turns.num_steps()
