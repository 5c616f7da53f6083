"""How the processes of a run meet, and how each one ends."""

import contextlib
import socket
import subprocess
import sys
from datetime import timedelta

import pytest
import torch.distributed

from tielab.processes import port_of_ones_own


def test_a_held_port_is_given_to_nobody_else_and_torch_can_listen_there():
    with contextlib.ExitStack() as held:
        ports = [held.enter_context(port_of_ones_own()) for _ in range(50)]
        assert len(set(ports)) == 50
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("", ports[0]))
        for _ in range(2):  # one that has closed is no obstacle to the next
            store = torch.distributed.TCPStore(
                "127.0.0.1", ports[0], is_master=True, timeout=timedelta(seconds=20)
            )
            store.set("met", "yes")
            assert store.get("met") == b"yes"
            del store
    with socket.socket() as other:
        other.bind(("", ports[1]))


def test_a_process_leaves_without_the_end_of_its_interpreter():
    """What gloo's threads do then is a matter of luck; here it is what happens every time."""
    script = """
import atexit, os, sys, threading, time
from tielab.lifetime import leave

class Aborts:
    __del__ = lambda self, abort=os.abort: abort()

sys.held = Aborts()
atexit.register(print, "farewell", end=" ")
threading.Thread(target=lambda: (time.sleep(0.2), print("thread", end=" "))).start()
print("work", end=" ")
{end}
"""
    ends = {}
    for end in ("leave(3)", "sys.exit(3)"):
        command = [sys.executable, "-c", script.replace("{end}", end)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        ends[end] = (done.returncode, done.stdout)
    assert ends["leave(3)"] == (3, "work thread farewell ")
    assert ends["sys.exit(3)"][0] == -6  # else this test shows nothing


def test_a_process_of_a_run_takes_the_smallest_numbers_for_zero_in_all_its_threads():
    script = """
import sys, torch, tielab.experiment
from pathlib import Path

def run_rank(folder):
    torch.set_num_threads(2)
    smallest = torch.full((2**20,), 1e-38)  # more than one thread's share
    print(int((smallest * 0.1).count_nonzero()))
    return 0

tielab.experiment.run_rank = run_rank
if sys.argv[1] == "run":
    tielab.experiment.run_process(Path())
else:
    run_rank(Path())
"""
    found = [
        subprocess.run([sys.executable, "-c", script, arm], capture_output=True, text=True, check=True).stdout
        for arm in ("run", "as it is")
    ]
    assert found == ["0\n", f"{2**20}\n"]
