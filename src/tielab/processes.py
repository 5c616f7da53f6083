"""The processes of a run: one fresh one per device, however they are started, and what becomes of them.

Forked from a server that has imported torch and Lightning once, a process is ready in a fraction of
a second; nothing of one job reaches the next.
"""

import atexit
import contextlib
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from tielab.errors import FINISHED, INTERRUPTED
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

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)
"""The last one is SLURM's warning before a time limit or a preemption, as submitit asks for it."""


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


FORK_SERVER_DIED = 255
"""What multiprocessing says of all its processes then."""


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
        fork = config["launch"] == "forkserver"
        children: list[Child] = []
        try:
            for environment in _rank_environments(trainer, port, gpus):
                children.append(_fork(folder, environment, config) if fork else _spawn(folder, environment))
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


WANDB = ("wandb", "wandb.sdk.launch")
"""What starting a W&B run imports, in nearly a second."""


def start_fork_server(*, with_wandb: bool) -> bool:
    """Let a server import torch and Lightning once, from which every job's process starts.

    Returns whether it was started now; one that runs already stays as it is.
    """
    # Else Python would import what lies in the current folder, which may be a stranger's run.
    os.environ["PYTHONSAFEPATH"] = "1"
    started = _server_pid() is None
    wandb = WANDB if with_wandb else ()
    multiprocessing.forkserver.set_forkserver_preload([*wandb, "tielab.preloaded"])
    with _stops_blocked():
        multiprocessing.forkserver.ensure_running()
    return started


def kill_fork_server() -> None:
    """End a server that is of no use, in the middle of its imports if need be."""
    pid = _server_pid()
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


has_forked = False
"""Whether this process has started a job's process from its fork server."""


def _server_pid() -> int | None:
    server: Any = multiprocessing.forkserver._forkserver
    pid: int | None = server._forkserver_pid
    return pid


@contextlib.contextmanager
def _stops_blocked() -> Iterator[None]:
    """Start the fork server with the signals blocked that ask a run to stop.

    SLURM and `kill -- -GROUP` send to it as well, and with it all processes seem to have ended. It
    inherits what is blocked here; the tracker of resources would unblock it, so it starts first.
    """
    multiprocessing.resource_tracker.ensure_running()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _fork(folder: Path, environment: dict[str, str], config: dict[str, Any]) -> Child:
    context = multiprocessing.get_context("forkserver")
    if multiprocessing.get_start_method() not in multiprocessing.get_all_start_methods():
        # Joblib's worker has one of its own, which the new process would try to set and not know.
        multiprocessing.set_start_method("forkserver", force=True)
    start_fork_server(with_wandb="wandb" in config["logger"])
    process = context.Process(target=_forked, args=(folder, environment, Path.cwd()))
    with _stops_blocked(), _main_module_unseen():
        process.start()
    global has_forked
    has_forked = True
    assert process.pid is not None
    pid = process.pid
    return Child(
        poll=lambda: process.exitcode,
        send=lambda number: os.kill(pid, number),
        sentinel=process.sentinel,
    )


@contextlib.contextmanager
def _main_module_unseen() -> Iterator[None]:
    """Keep a new process from importing the program that starts it, which would begin anew there."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _forked(folder: Path, environment: dict[str, str], current: Path) -> None:
    # A fork server's environment and current folder are those of its own start.
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(current)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    from tielab.experiment import run_process

    die_with_parent()
    sys.exit(run_process(folder))


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


def die_with_parent() -> None:
    """End this process when the one that started it has gone, however it went."""
    # SLURM's warning goes to every process of a job; the one that started this one acts on it.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    launcher = multiprocessing.parent_process()
    parent = os.getppid()

    def watch() -> None:
        if launcher is not None:  # forked by the fork server, which outlives the one that asked for it
            wait([launcher.sentinel])
        while launcher is None and os.getppid() == parent:
            time.sleep(1)
        os._exit(70)

    threading.Thread(target=watch, daemon=True).start()


def leave(status: int) -> NoReturn:
    """End this process as a forked one ends: all but the tearing down of the interpreter.

    Where FSDP still refers to a group that was destroyed, its threads live on, and one that lets go of
    a tensor while the interpreter is torn down aborts the process after its work is done and recorded.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the threads that are to be waited for
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # a closed pipe, or none at all
            stream.flush()
    os._exit(status)


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
