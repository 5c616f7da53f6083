"""Whether this machine can train: torch and its devices, cores, git, and where W&B would write to."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tielab.code_version import code_version
from tielab.doctor.findings import FAIL, OK, WARN, Finding
from tielab.errors import RequestError, reason_of
from tielab.slots import num_gpus

SECRETS = ("WANDB_API_KEY",)
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def check_torch() -> Iterator[Finding]:
    """That torch can be imported, and which devices it sees."""
    try:
        import torch
    except Exception as error:  # a broken installation raises ImportError, OSError and worse
        yield Finding(
            "torch", FAIL, f"cannot be imported: {reason_of(error)}",
            "pip install --force-reinstall torch; `tielab ls`, `show` and `report` work without it",
        )  # fmt: skip
        return
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        found = f"{torch.__version__}, {len(names)} GPU{'s' * (len(names) > 1)}: {', '.join(names)}"
        yield Finding("torch", OK, f"{found}; train on them with trainer=gpu")
        return
    where = "MPS and CPU" if torch.backends.mps.is_available() else "CPU"
    if num_gpus():
        yield Finding(
            "torch", WARN, f"{torch.__version__} sees no GPU, the driver shows {num_gpus()}",
            "install the torch of your CUDA version: https://pytorch.org/get-started/locally",
        )  # fmt: skip
    else:
        yield Finding("torch", OK, f"{torch.__version__}, {where}, no GPU")


def check_cores() -> Iterator[Finding]:
    """How many cores a run would take, and whether others are at work on them."""
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    found = f"{cores} for this process, load {load:.1f}"
    quota = _cpu_quota()
    if quota is not None and quota < cores:
        yield Finding(
            "cores", WARN, f"{found}; this container gets {quota:g} of them",
            f"trainer.num_threads={max(1, int(quota))}, or start with taskset -c",
        )  # fmt: skip
    elif load > cores and os.environ.get("OMP_WAIT_POLICY", "").upper() != "PASSIVE":
        yield Finding("cores", WARN, f"{found}: others work here too", "export OMP_WAIT_POLICY=PASSIVE")
    else:
        yield Finding("cores", OK, found)


def _cpu_quota() -> float | None:
    """Cores that the kernel grants this container, if it grants less than all."""
    try:
        quota, period = CPU_QUOTA.read_text(encoding="utf-8").split()[:2]
        return int(quota) / int(period)
    except (OSError, ValueError):
        return None


def check_git() -> Iterator[Finding]:
    """Whether records will say of which code a run is."""
    if shutil.which("git") is None:
        yield Finding("git", WARN, "not found: records hold a hash of the code and no commit", "install git")
        return
    commit, dirty = code_version()
    if commit is None:
        yield Finding("git", OK, "the package is not in a checkout: records hold a hash of the code alone")
    elif dirty:
        yield Finding(
            "git", WARN, f"commit {commit[:12]} with uncommitted changes, which records will say",
            "commit before runs that are to be repeated",
        )  # fmt: skip
    else:
        yield Finding("git", OK, f"commit {commit[:12]}, clean")


def check_wandb() -> Iterator[Finding]:
    """What W&B would do with a run that is started now; no server is asked."""
    given = [
        f"{name}={'***' if name in SECRETS else value}"
        for name, value in sorted(os.environ.items())
        if name.startswith("WANDB_")
    ]
    environment = f" ({', '.join(given)})" if given else ""
    try:
        from tielab.tracking.wandb_mode import chosen_mode

        mode = chosen_mode("auto")
    except RequestError as error:
        yield Finding("W&B", FAIL, f"{error}{environment}", "repair that, or train with logger=csv")
        return
    if mode == "online":
        yield Finding("W&B", OK, f"online: a key is there{environment}")
    elif mode == "disabled":
        yield Finding("W&B", OK, f"switched off{environment}")
    else:
        asked = "as WANDB_MODE says" if os.environ.get("WANDB_MODE") else "no key, for online: wandb login"
        yield Finding("W&B", OK, f"offline, {asked}; runs are kept in outputs/wandb{environment}")
