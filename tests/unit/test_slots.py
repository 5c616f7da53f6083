"""A slot has one holder at a time, whatever becomes of the holders: shown with processes that hold them."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from tielab.errors import RequestError
from tielab.slots import device_names, devices_folder, hold_slots, try_lock

HOLDER = """
import sys, time
from pathlib import Path
from tielab.slots import hold_slots
folder, names, count, seconds, holders = [*sys.argv[1:], "1"][:5]
with hold_slots(names.split(","), int(count), Path(folder), holders=int(holders)) as held:
    print("held", *held, flush=True)
    with open(Path(folder) / "events", "a") as events:
        events.write("".join(f"+ {name} {holders}\\n" for name in held))
        events.flush()
        time.sleep(float(seconds))
        events.write("".join(f"- {name} {holders}\\n" for name in held))
"""

RUN = """
import subprocess, sys
from pathlib import Path
from tielab import processes
folder = Path(sys.argv[1])
processes.num_gpus = lambda: 2
processes.devices_folder = lambda: folder
RANK = '''
import os, sys, time
mine = os.environ["CUDA_VISIBLE_DEVICES"]
with open(sys.argv[1] + "/events", "a") as events:
    events.write(f"+ {mine}\\\\n"); events.flush()
    time.sleep(0.3)
    events.write(f"- {mine}\\\\n")
'''
def spawn(folder, environment):
    process = subprocess.Popen([sys.executable, "-c", RANK, str(folder)], env=environment)
    return processes.Child(poll=process.poll, send=process.send_signal)
processes._spawn = spawn
devices, jobs_per_gpu = map(int, [*sys.argv[2:], 1, 1][:2])
trainer = {"accelerator": "gpu", "devices": devices, "num_nodes": 1, "num_threads": 1, "strategy": "ddp"}
config = {"launch": "spawn", "trainer": trainer, "jobs_per_gpu": jobs_per_gpu}
ending = processes.start_and_wait(config, folder)
sys.exit(130 if ending.stopped else ending.status)
"""


def start(script, *arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, **environment},
    )  # fmt: skip


def most_at_once(folder):
    """By slot: the largest number of holders at any time."""
    now, most = Counter(), Counter()
    for line in (folder / "events").read_text().splitlines():
        sign, name, *_ = line.split()
        now[name] += 1 if sign == "+" else -1
        most[name] = max(most[name], now[name])
    return most


def test_four_jobs_on_two_gpus_never_share_one(tmp_path):
    jobs = [start(RUN, tmp_path, CUDA_VISIBLE_DEVICES="4,GPU-ab,7") for _ in range(4)]
    assert [job.wait(timeout=60) for job in jobs] == [0, 0, 0, 0]
    assert most_at_once(tmp_path) == {"4": 1, "GPU-ab": 1}  # the driver shows two


def test_jobs_of_several_slots_do_not_block_each_other(tmp_path):
    jobs = [start(HOLDER, tmp_path, "a,b,c", count, 0.2) for count in (2, 1, 3, 2, 1)]
    assert [job.wait(timeout=60) for job in jobs] == [0] * 5
    assert most_at_once(tmp_path) == {"a": 1, "b": 1, "c": 1}


def test_a_gpu_has_as_many_jobs_as_asked_for(tmp_path):
    jobs = [start(RUN, tmp_path, 1, 2, CUDA_VISIBLE_DEVICES="4,7") for _ in range(7)]
    assert [job.wait(timeout=60) for job in jobs] == [0] * 7
    assert most_at_once(tmp_path) == {"4": 2, "7": 2}


def test_jobs_that_share_are_spread_over_the_gpus_first(tmp_path):
    with (
        hold_slots(["a", "b"], 1, tmp_path, holders=2) as first,
        hold_slots(["a", "b"], 1, tmp_path, holders=2) as second,
        hold_slots(["a", "b"], 2, tmp_path, holders=2) as both,
    ):
        assert (first, second, both) == (["a"], ["b"], ["a", "b"])


def given_up_at_once():
    """Gives a wait two tries."""
    asked = iter([False, False])
    return lambda: next(asked, True)


@pytest.mark.parametrize(("holders", "others"), [(1, 2), (2, 1), (2, 3), (3, 2)])
def test_who_allows_others_another_number_waits(holders, others, tmp_path):
    with hold_slots(["a"], 1, tmp_path, holders=holders) as held:
        assert held == ["a"]
        with hold_slots(["a"], 1, tmp_path, given_up_at_once(), holders=others) as refused:
            assert refused == []
    with hold_slots(["a"], 1, tmp_path, holders=others) as held:
        assert held == ["a"]


def test_jobs_alone_and_jobs_that_share_never_meet(tmp_path):
    holders = [1, 2, 3, 2, 1, 2, 3, 2]
    jobs = [start(HOLDER, tmp_path, "a,b", 1 + n % 2, 0.1, n) for n in holders]
    assert [job.wait(timeout=60) for job in jobs] == [0] * len(jobs)
    now = {"a": [], "b": []}
    for line in (tmp_path / "events").read_text().splitlines():
        sign, name, number = line.split()
        now[name].append(number) if sign == "+" else now[name].remove(number)
        assert len(set(now[name])) <= 1, line
        assert not now[name] or len(now[name]) <= int(number), line


def test_a_lock_file_that_was_deleted_is_not_held(tmp_path, monkeypatch):
    path, real = tmp_path / "slot", fcntl.flock
    path.touch()

    def deleted_before_it_is_locked(descriptor, kind):
        path.unlink(missing_ok=True)
        monkeypatch.setattr("tielab.slots.fcntl.flock", real)
        real(descriptor, kind)

    monkeypatch.setattr("tielab.slots.fcntl.flock", deleted_before_it_is_locked)
    held = try_lock(path)
    assert os.fstat(held).st_ino == path.stat().st_ino
    assert try_lock(path) is None
    os.close(held)


def test_a_killed_holder_leaves_its_slots_free(tmp_path):
    holder = start(HOLDER, tmp_path, "a,b", 2, 60)
    assert holder.stdout.readline() == "held a b\n"
    deadline, said = time.monotonic() + 1.5, []
    with hold_slots(
        ["a", "b"], 1, tmp_path, lambda: time.monotonic() > deadline, lambda: said.append(1)
    ) as held:
        assert held == []
    assert said == [1]
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    started = time.monotonic()
    with hold_slots(["a", "b"], 2, tmp_path) as held:
        assert held == ["a", "b"]
    assert time.monotonic() - started < 1


def test_a_signal_ends_the_wait_for_a_gpu(tmp_path):
    with hold_slots(["0", "1"], 2, tmp_path):
        job = start(RUN, tmp_path, CUDA_VISIBLE_DEVICES="0,1")
        assert job.stdout.readline() == "waiting for 1 of the GPUs 0, 1: other runs have them\n"
        job.send_signal(signal.SIGTERM)
        assert job.wait(timeout=10) == 130
    assert not (tmp_path / "events").exists()


def test_more_slots_than_there_are(tmp_path):
    with pytest.raises(RequestError, match="3 of the slots a, b"), hold_slots(["a", "b"], 3, tmp_path):
        pass


@pytest.mark.parametrize(
    ("visible", "names"),
    [(None, ["0", "1"]), ("3, 2,1", ["3", "2"]), ("GPU-ab,MIG-cd/1/0", ["GPU-ab", "MIG-cd/1/0"])],
)
def test_gpus_have_the_names_a_process_would_use(visible, names, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert device_names(2) == names


def test_an_allocation_of_slurm_has_gpus_of_its_own(tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    outside = devices_folder()
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert devices_folder() != outside
    with hold_slots(["MIG-cd/1/0"], 1, tmp_path) as held:
        assert held == ["MIG-cd/1/0"]
