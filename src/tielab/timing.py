"""Seconds per training token of two arms on this machine, measured once and remembered.

The measurement runs in a process of its own (``bursts.py``): this one imports no torch.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tielab.code_version import code_hash
from tielab.errors import RequestError
from tielab.matching import vocab_size_of
from tielab.processes import STALE_VARIABLES
from tielab.record import write_atomic
from tielab.slots import alone, device_names, devices_folder, hold_slots, num_gpus

FORMAT_VERSION = 1
"""Raised whenever what is measured, or how, changes."""
REQUEST_NAME, RESULT_NAME = "request.json", "result.json"


def seconds_per_token(config: dict[str, Any], reference_model: dict[str, Any]) -> dict[str, Any]:
    """Seconds per training token of a config's model and of another in its place.

    Kept in ``data.cache_dir``, so that every seed, and a resume with the same code, finds the same numbers.

    Returns:
        ``adjusted`` and ``reference``, each with ``median``, ``q1`` and ``q3`` over the repeats, and how
        they were measured.

    Raises:
        RequestError: it would take several processes, or the measurement broke.
    """
    num_processes = config["trainer"]["devices"] * config["trainer"]["num_nodes"]
    if num_processes > 1:
        raise RequestError(
            f"matching=time measures one process, {num_processes} were asked for; use matching=flops"
        )
    key = timing_key(config, reference_model)
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:20]
    folder = Path(config["data"]["cache_dir"]).expanduser() / "timings"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{digest}.json"
    with alone(path.with_suffix(".lock")):
        found = _read(path)
        if found is None:
            found = _measure(config, reference_model)
            write_atomic(path, json.dumps({"key": key, "measured": found}, indent=1) + "\n")
    return found


def timing_key(config: dict[str, Any], reference_model: dict[str, Any]) -> dict[str, Any]:
    """All that decides how long a training step takes; seeds do not."""
    data, optimizer = config["data"], config["optimizer"]
    same = {"seed": None, "vocab_size": vocab_size_of(config)}
    return {
        "format": FORMAT_VERSION,
        "models": [{**model, **same} for model in (config["model"], reference_model)],
        "data": {name: data[name] for name in ("block_size", "batch_size", "num_workers")},
        "optimizer": {name: optimizer[name] for name in ("fused", "gradient_clip_norm")},
        "trainer": config["trainer"],
        "device": _device(config["trainer"]["accelerator"]),
        "code": code_hash(),
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "lightning")},
    }


def _device(accelerator: str) -> str:
    if accelerator == "gpu":
        return f"{platform.node()}: GPU {','.join(device_names(num_gpus())[:1])}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["measured"]
        usable = all(found[arm]["median"] > 0 for arm in ("adjusted", "reference"))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if usable else None


def _measure(config: dict[str, Any], reference_model: dict[str, Any]) -> dict[str, Any]:
    print("matching=time: measures the seconds per token of both arms, for some 20 s", flush=True)
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name, _device_environment(config["trainer"]) as environment:
        folder = Path(name)
        request = {"config": config, "reference_model": reference_model}
        (folder / REQUEST_NAME).write_text(json.dumps(request), encoding="utf-8")
        command = [sys.executable, "-m", "tielab.bursts", name]
        status = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL).returncode
        if status != 0:
            raise RequestError(f"matching=time: the measurement ended with status {status}; see above")
        result: dict[str, Any] = json.loads((folder / RESULT_NAME).read_text(encoding="utf-8"))
    return {**result, "load_average": [load_before, os.getloadavg()[0]]}


@contextlib.contextmanager
def _device_environment(trainer: dict[str, Any]) -> Iterator[dict[str, str]]:
    """The environment of a run's process, with a GPU of its own if it asks for one."""
    environment = {k: v for k, v in os.environ.items() if k not in STALE_VARIABLES}
    environment |= {"OMP_NUM_THREADS": str(trainer["num_threads"]), "PYTHONSAFEPATH": "1"}
    if trainer["accelerator"] != "gpu":
        yield environment
        return
    with hold_slots(device_names(num_gpus()), 1, devices_folder()) as gpus:
        yield {**environment, "CUDA_VISIBLE_DEVICES": gpus[0]}
