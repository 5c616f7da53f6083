"""How a benchmark measures: rounds in turn, medians and quartiles, what ran beside it, and where it was run.

Every figure that is compared is a ratio of figures from one run on one machine. A result is a JSON file in
``results/``; ``tables.py`` makes the tables of the README from these files and from nothing else.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).with_name("results")
PACKAGES = ("torch", "lightning", "torchmetrics", "tokenizers", "numpy", "hydra-core")
BUSY_LIMIT = 0.10
"""Share of the processors' time that others may use in a measurement that counts as quiet."""
SLOW_LIMIT = 0.85
"""Least share of its speed at the faster end that a quiet machine has at the slower one."""


def quartiles(values: Sequence[float]) -> dict[str, float]:
    """Median, lower and upper quartile, and how many values they are of."""
    low, median, high = (float(q) for q in np.quantile(np.asarray(values, dtype=float), (0.25, 0.5, 0.75)))
    return {"median": median, "low": low, "high": high, "n": len(values)}


def ratios(values: Sequence[float], baseline: Sequence[float]) -> dict[str, float]:
    """Quartiles of the ratios round by round, so that a drift of the machine's speed falls out."""
    return quartiles([value / base for value, base in zip(values, baseline, strict=True)])


def interleave(arms: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """What each arm returned in each round; the arms take turns, every second round in reverse."""
    found: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(rounds):
        for name in list(arms)[:: -1 if number % 2 else 1]:
            found[name].append(arms[name]())
    return found


def seconds(function: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def _processor_seconds() -> tuple[float, float]:
    """Seconds that all processors were busy, and that were taken from this machine, since it started."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    user, nice, system, _, _, interrupts, soft, steal, *_ = fields
    ticks = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + interrupts + soft) / ticks, steal / ticks


def busy_share(duration: float = 2.0) -> float:
    """Share of the processors' time that is used, or taken from this machine, while this process sleeps."""
    before = sum(_processor_seconds())
    time.sleep(duration)
    return (sum(_processor_seconds()) - before) / (duration * (os.cpu_count() or 1))


def product_rate() -> float:
    """Operations per second of a float32 product of 2,048 square, best of three: how fast the machine is now.

    It has been seen to fall by a third with next to no time taken from the processors.
    """
    draw = np.random.default_rng(0)
    left, right = (draw.random((2048, 2048), dtype=np.float32) for _ in range(2))
    return 2 * 2048**3 / min(seconds(lambda: left @ right) for _ in range(3))


@contextlib.contextmanager
def watched() -> Iterator[dict[str, float]]:
    """What ran beside a measurement: ``busy_before``, and when the block ends ``stolen`` and ``slowest``.

    ``slowest`` is the lower of ``product_rate`` before and after, over the higher.

    Says so on standard error where the machine was not quiet; the tables say it too.
    """
    seen = {"busy_before": busy_share()}
    before = product_rate()
    started, (_, stolen) = time.monotonic(), _processor_seconds()
    yield seen
    duration = time.monotonic() - started
    seen["stolen"] = (_processor_seconds()[1] - stolen) / (duration * (os.cpu_count() or 1))
    seen["seconds"] = duration
    after = product_rate()
    seen["product_flops_per_second"] = max(before, after)
    seen["slowest"] = min(before, after) / max(before, after)
    if not is_quiet(seen):
        print(f"note: the machine was not quiet: {describe_quiet(seen)}", file=sys.stderr)


def is_quiet(seen: Mapping[str, float]) -> bool:
    return max(seen["busy_before"], seen["stolen"]) <= BUSY_LIMIT and seen.get("slowest", 1.0) >= SLOW_LIMIT


def describe_quiet(seen: Mapping[str, float]) -> str:
    said = f"{seen['busy_before']:.0%} busy before, {seen['stolen']:.0%} taken by other machines during it"
    if "slowest" in seen:
        said += (
            f"; a product of 2048 square at {seen['product_flops_per_second'] / 1e9:.0f} GFLOP/s at one end, "
            f"{seen['slowest']:.0%} of that at the other"
        )
    return said


def processor() -> str:
    """The processor by its maker's name, and what it has for bfloat16."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    named = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = named.get("flags", "").split()
    found = [word for word in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if word in flags]
    return f"{named.get('model name', platform.machine())} ({', '.join(found)})"


def machine() -> dict[str, Any]:
    """Where this runs."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"processor": processor(), "cores": os.cpu_count(), "memory_gib": round(memory / 2**30)}


def commit() -> str:
    """The commit that is measured, with a plus where files differ from it."""
    folder = Path(__file__).parents[1]
    try:
        asked = [["rev-parse", "--short=10", "HEAD"], ["status", "--porcelain", "--", "src", "conf"]]
        head, changed = (
            subprocess.run(["git", *args], cwd=folder, capture_output=True, text=True, check=True).stdout
            for args in asked
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.strip() + ("+" if changed.strip() else "")


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Versions of Python and of packages; those not installed are left out."""
    found = {"python": platform.python_version()}
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def called_as() -> str:
    """How the benchmark that runs was called, without its arguments."""
    return f"python -m benchmarks.{Path(sys.argv[0]).stem}"


def command_line(description: str | None, *, quick: str, prog: str | None = None) -> argparse.ArgumentParser:
    """Of the arguments that every benchmark takes; ``quick`` says what is less then."""
    made = argparse.ArgumentParser(
        prog=prog or called_as(), description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    made.add_argument("--quick", action="store_true", help=quick)
    made.add_argument("--out", type=Path, default=RESULTS, help="folder for the result")
    return made


def write(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    seen: Mapping[str, float],
    conditions: Mapping[str, Any],
    out: Path = RESULTS,
) -> Path:
    """Write a benchmark's result, whole or not at all.

    Args:
        name: of the result's file.
        rows: plain values by column, all a table needs.
        seen: of ``watched``.
        conditions: whatever the figures hold for: threads, shapes, rounds, versions of peers.
    """
    result = {
        "benchmark": name,
        "command": " ".join([called_as(), *sys.argv[1:]]),
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "quiet": is_quiet(seen),
        **{key: round(value, 4) for key, value in seen.items()},
        "conditions": dict(conditions),
        "rows": [dict(row) for row in rows],
    }
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.json"
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)
    return path
