"""The processes of a run: one fresh one per device, however they are started, and what becomes of them."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from types import FrameType
from typing import Any

from tielab.errors import FINISHED, INTERRUPTED
from tielab.fork_server import FORK_SERVER_DIED, fork
from tielab.lifetime import STOP_SIGNALS
from tielab.slots import device_names, devices_folder, hold_slots, num_gpus

STALE_VARIABLES = (
    "LOCAL_RANK", "RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "PL_GLOBAL_SEED",
    "HYDRA_FULL_ERROR", "SLURM_NTASKS",
)  # fmt: skip
"""Would tell a job's processes that somebody else has started them."""

SECONDS_TO_STOP = 300.0
"""Between a request to stop and a kill: time for a validation or some steps, and a checkpoint."""

SECONDS_BETWEEN_LOOKS = 0.05
"""At whether somebody asks for the run to stop."""


def never() -> bool:
    return False


stop_asked: Callable[[], bool] = never
"""Whether somebody else than a signal wants the run of this process to stop; ``parallel.py`` sets it."""


@contextlib.contextmanager
def stopping_when(condition: Callable[[], bool]) -> Iterator[None]:
    """Ask the run of this process to stop when a condition holds, or one asked for before does."""
    global stop_asked
    earlier = stop_asked
    stop_asked = lambda: earlier() or condition()  # noqa: E731
    try:
        yield
    finally:
        stop_asked = earlier


@dataclass(frozen=True)
class Ending:
    """How the processes of a run have ended."""

    status: int
    """The first exit status that is not 0, negative for a signal."""
    stopped: bool = False
    """Whether this process was asked to stop, and not just one of theirs."""


def start_and_wait(config: dict[str, Any], folder: Path) -> Ending:
    """Start one process per device and wait for all; a signal to this process stops them.

    Each GPU is this run's alone, or its and ``jobs_per_gpu`` - 1 others', until its processes have ended;
    waits while other runs have them.
    """
    os.environ["PYTHONSAFEPATH"] = "1"  # as for a fork server
    trainer, inline = config["trainer"], config["launch"] == "inline"
    received: list[int] = []
    with contextlib.ExitStack() as held:
        if not inline:  # there the run has handlers of its own
            held.enter_context(_signals_go_to(received))
        gpus: list[str] | None = None
        if trainer["accelerator"] == "gpu":
            share = config["jobs_per_gpu"]
            gpus = held.enter_context(_gpus(trainer["devices"], share, inline, received))
            if not gpus:
                return Ending(INTERRUPTED, stopped=True)
        if inline:
            from tielab.experiment import run_rank

            status = run_rank(folder)
            return Ending(status, stopped=status == INTERRUPTED)
        port = held.enter_context(port_of_ones_own())
        if config["launch"] == "torchrun":
            return _wait_for([_torchrun(trainer, folder, port, gpus)], received)
        forks = config["launch"] == "forkserver"
        children: list[Child] = []
        try:
            for environment in _rank_environments(trainer, port, gpus):
                children.append(_fork(folder, environment, config) if forks else _spawn(folder, environment))
        except EOFError:
            _send(children, signal.SIGKILL)
            return Ending(FORK_SERVER_DIED)
        return _wait_for(children, received)


def _gpus(
    count: int, jobs_per_gpu: int, inline: bool, received: list[int]
) -> contextlib.AbstractContextManager[list[str]]:
    names = device_names(num_gpus())
    if inline:  # this process has asked the driver already, and will use the first one whatever is set now
        names = names[:count]
    return hold_slots(
        names,
        count,
        devices_folder(),
        give_up=lambda: bool(received) or stop_asked(),
        say=lambda: print(
            f"waiting for {count} of the GPUs {', '.join(names)}: other runs have them", flush=True
        ),
        holders=jobs_per_gpu,
    )


def _rank_environments(
    trainer: dict[str, Any], port: int, gpus: Sequence[str] | None
) -> list[dict[str, str]]:
    """The whole environment of each of this node's processes.

    Args:
        port: where they meet, if they are all on this machine.
        gpus: the run's own, as ``CUDA_VISIBLE_DEVICES`` names them.
    """
    base = {k: v for k, v in os.environ.items() if k not in STALE_VARIABLES}
    if gpus is not None:
        base["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    base["OMP_NUM_THREADS"] = str(trainer["num_threads"])
    if trainer["num_nodes"] == 1:
        for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK"):
            base.pop(name, None)
        if trainer["devices"] == 1:
            return [base]
        base |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0"}
    return [{**base, "LOCAL_RANK": str(rank)} for rank in range(trainer["devices"])]


@contextlib.contextmanager
def port_of_ones_own() -> Iterator[int]:
    """A port that no other program is given until the block ends.

    Only who asks for it by number and with ``SO_REUSEADDR``, as torch's store does, can listen there.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("", 0))
        yield holder.getsockname()[1]


@dataclass
class Child:
    """A started process, however it was started."""

    poll: Callable[[], int | None]
    """Exit status, negative for a signal; None while it lives."""
    send: Callable[[int], None]
    sentinel: int | None = None
    """A descriptor that can be read once it has ended, where there is one."""


def _fork(folder: Path, environment: dict[str, str], config: dict[str, Any]) -> Child:
    process = fork(folder, environment, with_wandb="wandb" in config["logger"])
    assert process.pid is not None
    pid = process.pid
    return Child(
        poll=lambda: process.exitcode,
        send=lambda number: os.kill(pid, number),
        sentinel=process.sentinel,
    )


def _spawn(folder: Path, environment: dict[str, str]) -> Child:
    process = subprocess.Popen([sys.executable, "-m", "tielab.experiment", str(folder)], env=environment)
    return Child(poll=process.poll, send=process.send_signal)


def _torchrun(trainer: dict[str, Any], folder: Path, port: int, gpus: Sequence[str] | None) -> Child:
    environment = _rank_environments(trainer, port, gpus)[0]
    command = [
        sys.executable, "-m", "torch.distributed.run",
        f"--nnodes={trainer['num_nodes']}", f"--node-rank={environment.get('NODE_RANK', '0')}",
        f"--nproc-per-node={trainer['devices']}",
        f"--master-addr={environment.get('MASTER_ADDR', '127.0.0.1')}",
        f"--master-port={environment.get('MASTER_PORT', port)}",
        "--module", "tielab.experiment", str(folder),
    ]  # fmt: skip
    environment.pop("LOCAL_RANK", None)
    process = subprocess.Popen(command, env=environment)
    return Child(poll=process.poll, send=process.send_signal)


def _wait_for(children: list[Child], received: list[int]) -> Ending:
    """Wait for all children; a failed one ends the others, a signal to this process ends all.

    Args:
        received: the signals to this process, as they come.
    """
    first_failure = FINISHED
    asked_at: float | None = None
    while any(child.poll() is None for child in children):
        if not received and stop_asked():
            received.append(signal.SIGTERM)
        living = [child for child in children if child.poll() is None]
        failed = next((status for child in children if (status := child.poll())), FINISHED)
        first_failure = first_failure or failed
        if asked_at is None and (received or failed):
            asked_at = time.monotonic()
            _send(living, signal.SIGTERM)
        # A rank that waits for a dead one in a collective cannot stop by itself.
        patience = SECONDS_TO_STOP if received else 5.0
        # SLURM sends several different signals before it kills; a person repeats one.
        if len(received) > len(set(received)) or (
            asked_at is not None and time.monotonic() - asked_at > patience
        ):
            _send(living, signal.SIGKILL)
        _sleep_until_one_ends(living)
    first_failure = first_failure or next((s for child in children if (s := child.poll())), FINISHED)
    return Ending(first_failure, stopped=bool(received))


def _sleep_until_one_ends(children: Sequence[Child]) -> None:
    """Sleep for ``SECONDS_BETWEEN_LOOKS``, or shorter if a child that has a sentinel ends before."""
    sentinels = [child.sentinel for child in children if child.sentinel is not None]
    if sentinels:
        wait(sentinels, SECONDS_BETWEEN_LOOKS)
    else:
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _send(children: Sequence[Child], number: int) -> None:
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            child.send(number)


@contextlib.contextmanager
def _signals_go_to(received: list[int]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)

    heeded = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, receive) for number in heeded}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
