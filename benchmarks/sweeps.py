"""What a sweep costs beside its jobs' training, and what two jobs at a time gain over one after the other.

``python -m benchmarks.sweeps``: short jobs of the default model, two at a time and in turn, with the threads
that the defaults give them. ``--minute``: eight jobs of a minute, written to ``sweeps_minute.json``.

A job's overhead is the time from its start to the next one's without its training and validation.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measure import RESULTS, quartiles, watched, write

ROOT = Path(__file__).parents[1]
PARALLEL = ("hydra/launcher=joblib", "parallel_jobs=2")
ONE_VALIDATION = "budget.num_validations=1"
QUICK = (
    "model=nano", "vocab=byte", "data=text", f"data.paths=[{ROOT / 'README.md'}]", "data.block_size=32",
    "width=d32", "logger=none",
)  # fmt: skip
ANNOUNCED = re.compile(r"job \d+ of \d+: .* -> (\S+)")


@dataclass(frozen=True)
class Swept:
    """A sweep that has ended."""

    seconds: float
    """Wall time of the whole command."""
    begun: list[float]
    """When each job was announced, in their order."""
    records: list[dict[str, Any]]

    def overheads(self) -> list[dict[str, float]]:
        """Of each job but the first, which waits for imports, and the last, which nothing follows."""
        walls = [after - before for before, after in zip(self.begun, self.begun[1:], strict=False)]
        found = []
        for wall, record in list(zip(walls, self.records, strict=False))[1:]:
            phases = record["seconds_by_phase"]
            computing = phases["train"] + phases["validation"]
            found.append(
                {
                    "overhead": wall - computing,
                    "process": wall - record["seconds"],
                    "data": phases["data"],
                    "model_trainer_files": record["seconds"] - computing - phases["data"],
                }
            )
        return found


def sweep(folder: Path, seeds: int, options: Sequence[str]) -> Swept:
    """Run ``python train.py -m seed=0,1,...`` in a folder of its own and time what it announces."""
    chosen = ",".join(map(str, range(seeds)))
    command = [sys.executable, str(ROOT / "train.py"), "-m", f"seed={chosen}", *options]
    begun: dict[str, float] = {}
    started = time.monotonic()
    with subprocess.Popen(
        [*command, f"hydra.sweep.dir={folder}", f"output_dir={folder.parent}"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            announced = ANNOUNCED.match(line)
            if announced:
                begun[Path(announced[1]).name] = time.monotonic() - started
    seconds = time.monotonic() - started
    if process.returncode:
        raise RuntimeError("".join(said[-20:]))
    names = sorted(begun, key=int)
    records = [json.loads((folder / name / "record.json").read_text(encoding="utf-8")) for name in names]
    return Swept(seconds, [begun[name] for name in names], records)


def environment() -> dict[str, str]:
    """This process's, with this checkout's code and without what would set threads or open W&B runs."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MKL_", "WANDB_"))}
    return {**inherited, "PYTHONPATH": str(ROOT / "src"), "WANDB_MODE": "offline"}


def tokens_for(seconds: float, folder: Path, options: Sequence[str]) -> int:
    """Training tokens with which a job of the default threads computes for about that long here."""
    tried = sweep(folder, 1, [*options, ONE_VALIDATION, "budget.tokens=60000"]).records[0]
    speed = tried["throughput"]["median"]
    return max(20_000, int(speed * (seconds - tried["seconds_by_phase"]["validation"])))


def measure(jobs: int, options: Sequence[str], folder: Path, *, same_threads: bool) -> list[dict[str, Any]]:
    """The rows of the result.

    Args:
        same_threads: run the jobs in turn twice: with the threads that a job alone has by default, and with
            those that each of two has, where they are the same runs bit by bit.
    """
    two = sweep(folder / "two_at_a_time", jobs, [*options, *PARALLEL])
    in_turn = {"in_turn": sweep(folder / "in_turn", jobs, options)}
    if same_threads:
        threads = f"trainer.num_threads={two.records[0]['num_threads']}"
        name = "in_turn_same_threads"
        in_turn[name] = sweep(folder / name, jobs, [*options, threads])
    arms = {"two_at_a_time": two, **in_turn}
    overheads = [one for swept in in_turn.values() for one in swept.overheads()]
    rows = [
        {"what": f"{part}_seconds_per_job", **quartiles([one[part] for one in overheads])}
        for part in ("overhead", "process", "data", "model_trainer_files")
    ]
    for name, swept in arms.items():
        each = quartiles([record["seconds"] for record in swept.records])
        rows.append({"what": f"job_seconds_{name}", **each, "threads": swept.records[0]["num_threads"]})
        rows.append({"what": f"seconds_{name}", "median": swept.seconds, "n": 1})
    rows += [
        {"what": f"two_at_a_time_to_{name}", "median": two.seconds / swept.seconds, "n": 1}
        for name, swept in in_turn.items()
    ]
    return rows


def show(rows: Sequence[dict[str, Any]]) -> None:
    table = Table("", "median", "quartiles", "n")
    for row in rows:
        spread = f"{row['low']:.2f} to {row['high']:.2f}" if "low" in row else ""
        table.add_row(row["what"].replace("_", " "), f"{row['median']:.2f}", spread, str(row["n"]))
    Console().print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minute", action="store_true", help="eight jobs of a minute, a quarter of an hour")
    parser.add_argument("--quick", action="store_true", help="jobs of a second, to see that it works")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args(arguments)
    jobs, seconds = (8, 60.0) if asked.minute else (3, 0.0) if asked.quick else (4, 10.0)
    options = QUICK if asked.quick else ()
    folder = Path(tempfile.mkdtemp(prefix="sweeps-"))
    try:
        with watched() as seen:
            tokens = 2_000 if asked.quick else tokens_for(seconds, folder / "trial", options)
            given = [*options, ONE_VALIDATION, f"budget.tokens={tokens}"]
            rows = measure(jobs, given, folder, same_threads=not asked.minute)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show(rows)
    conditions = {"jobs": jobs, "tokens": tokens, "options": options, "seconds_wanted_per_job": seconds}
    write("sweeps_minute" if asked.minute else "sweeps", rows, seen, conditions, asked.out)


if __name__ == "__main__":
    main()
