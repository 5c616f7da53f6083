"""What a sweep costs beside its jobs' training, and what two jobs at a time gain over one after the other.

``python -m benchmarks.sweeps``: short jobs of the default model, two at a time and in turn, with the threads
that the defaults give them, twice. ``--minute``: eight jobs of a minute, written to ``sweeps_minute.json``.

A job's overhead is the time from its start to the next one's without its training and validation. A part of
it grows with the number of steps: what the loop does between two of them (see ``overhead.py``).
"""

import csv
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
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measure import command_line, quartiles, ratios, watched, write

ROOT = Path(__file__).parents[1]
PARALLEL = ("hydra/launcher=joblib", "parallel_jobs=2")
ONE_VALIDATION = "budget.num_validations=1"
QUICK = (
    "model=nano", "vocab=byte", "data=text", f"data.paths=[{ROOT / 'README.md'}]", "data.block_size=32",
    "width=d32", "logger=none",
)  # fmt: skip
LOGGED_EVERY = 10
"""Steps, by default."""
ANNOUNCED = re.compile(r"job \d+ of \d+: .* -> (\S+)")


@dataclass(frozen=True)
class Swept:
    """A sweep that has ended."""

    seconds: float
    """Wall time of the whole command."""
    begun: list[float]
    """When each job was announced, in their order."""
    records: list[dict[str, Any]]
    between_steps: list[float]
    """Seconds of each job's training loop in which it did not train."""

    def overheads(self) -> list[dict[str, float]]:
        """Of each job but the first, which waits for imports, and the last, which nothing follows."""
        walls = [after - before for before, after in zip(self.begun, self.begun[1:], strict=False)]
        found = []
        for wall, record, between in list(zip(walls, self.records, self.between_steps, strict=False))[1:]:
            phases = record["seconds_by_phase"]
            computing = phases["train"] + phases["validation"]
            found.append(
                {
                    "overhead": wall - computing,
                    "process": wall - record["seconds"],
                    "data": phases["data"],
                    "between_steps": between,
                    "model_trainer_files": record["seconds"] - computing - phases["data"] - between,
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
    between = [seconds_between_steps(folder / name / "metrics.csv") for name in names]
    return Swept(seconds, [begun[name] for name in names], records, between)


def seconds_between_steps(metrics: Path) -> float:
    """What a training loop took beside its steps, by the intervals of which the throughput was measured."""
    with metrics.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["train/loss"]]
    beside, tokens = 0.0, 0
    for before, after in pairwise(rows):
        whole = int(after["step"]) - int(before["step"]) == LOGGED_EVERY
        if whole and after["tokens_per_second"]:
            passed = int(after["tokens"]) - int(before["tokens"])
            step_seconds = passed / float(after["tokens_per_second"])
            beside += float(after["seconds"]) - float(before["seconds"]) - step_seconds
            tokens += passed
    return beside / tokens * int(rows[-1]["tokens"]) if tokens else 0.0


def environment() -> dict[str, str]:
    """This process's, with this checkout's code and without what would set threads or open W&B runs."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MKL_", "WANDB_"))}
    return {**inherited, "PYTHONPATH": str(ROOT / "src"), "WANDB_MODE": "offline"}


def tokens_for(seconds: float, folder: Path, options: Sequence[str]) -> int:
    """Training tokens with which a job of the default threads computes for about that long here."""
    tried = sweep(folder, 1, [*options, ONE_VALIDATION, "budget.tokens=60000"]).records[0]
    speed = tried["throughput"]["median"]
    return max(20_000, int(speed * (seconds - tried["seconds_by_phase"]["validation"])))


def measure(jobs: int, options: Sequence[str], folder: Path, rounds: int) -> list[dict[str, Any]]:
    """The rows of the result: the jobs are run both ways in every round, in the second one in reverse."""
    found: dict[str, list[Swept]] = {"two_at_a_time": [], "in_turn": []}
    given = {"two_at_a_time": [*options, *PARALLEL], "in_turn": options}
    for number in range(rounds):
        for arm in list(found)[:: -1 if number % 2 else 1]:
            found[arm].append(sweep(folder / f"{arm}_{number}", jobs, given[arm]))
    overheads = [one for swept in found["in_turn"] for one in swept.overheads()]
    rows = [
        {"what": f"{part}_seconds_per_job", **quartiles([one[part] for one in overheads])}
        for part in ("overhead", "process", "data", "between_steps", "model_trainer_files")
    ]
    for arm, sweeps in found.items():
        records = [record for swept in sweeps for record in swept.records]
        each = quartiles([record["seconds"] for record in records])
        rows.append({"what": f"job_seconds_{arm}", **each, "threads": records[0]["num_threads"]})
        rows.append({"what": f"seconds_{arm}", **quartiles([swept.seconds for swept in sweeps])})
    ratio = ratios(*([swept.seconds for swept in found[arm]] for arm in ("two_at_a_time", "in_turn")))
    return [*rows, {"what": "two_at_a_time_to_in_turn", **ratio}]


def show(rows: Sequence[dict[str, Any]]) -> None:
    table = Table("", "median", "quartiles", "n")
    for row in rows:
        spread = f"{row['low']:.2f} to {row['high']:.2f}" if row["n"] > 1 else ""
        table.add_row(row["what"].replace("_", " "), f"{row['median']:.2f}", spread, str(row["n"]))
    Console().print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, quick="jobs of a second, to see that it works")
    parser.add_argument("--minute", action="store_true", help="eight jobs of a minute, a quarter of an hour")
    asked = parser.parse_args(arguments)
    jobs, seconds, rounds = (8, 60.0, 1) if asked.minute else (3, 0.0, 1) if asked.quick else (4, 10.0, 2)
    options = QUICK if asked.quick else ()
    folder = Path(tempfile.mkdtemp(prefix="sweeps-"))
    try:
        with watched() as seen:
            tokens = 2_000 if asked.quick else tokens_for(seconds, folder / "trial", options)
            given = [*options, ONE_VALIDATION, f"budget.tokens={tokens}"]
            rows = measure(jobs, given, folder, rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show(rows)
    conditions = {
        "jobs": jobs,
        "tokens": tokens,
        "options": options,
        "rounds": rounds,
        "seconds_wanted_per_job": seconds,
    }
    write("sweeps_minute" if asked.minute else "sweeps", rows, seen, conditions, asked.out)


if __name__ == "__main__":
    main()
