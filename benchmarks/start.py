"""How long a command takes until it answers, a wrong one until it says so, a run until its first step.

``python -m benchmarks.start``: whole commands in turn, each in a fresh process, with the part of one
more call that imports take (``python -X importtime``, which itself costs some).
"""

import collections
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measure import command_line, interleave, quartiles, watched, write

ROOT = Path(__file__).parents[1]
TRAIN, TIELAB = str(ROOT / "train.py"), ("-m", "tielab.cli")
COMMANDS: dict[str, tuple[str, ...]] = {
    "train.py --help": (TRAIN, "--help"),
    "train.py --cfg job": (TRAIN, "--cfg", "job"),
    "train.py, unknown key": (TRAIN, "model.teid=true"),
    "train.py, wrong type": (TRAIN, "model.tied=maybe"),
    "train.py -m, second job wrong": (TRAIN, "-m", "model.num_heads=4,3"),
    "tielab --help": (*TIELAB, "--help"),
    "tielab ls": (*TIELAB, "ls"),
}
FIRST_STEP = "train.py, first step"
QUICK = ("train.py --help", "tielab --help")
LONG_ENOUGH = ("trainer.log_every_n_steps=1", "budget.num_validations=1", "budget.tokens=4000000")
IMPORTED = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)")
MOST_SHOWN = 5
PATIENCE = 120.0


def command_seconds(arguments: Sequence[str], folder: Path, errors: Path | None = None) -> float:
    """Wall time of one call.

    Args:
        errors: where its standard error goes, with what imports took.
    """
    with (errors or Path(os.devnull)).open("w") as stderr:
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, *arguments],
            cwd=folder, env=environment(timed=errors is not None), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=stderr, check=False,
        )  # fmt: skip
        return time.perf_counter() - started


def first_step_seconds(options: Sequence[str], folder: Path, errors: Path | None = None) -> float:
    """From the call of ``train.py`` until the first step's loss is in ``metrics.csv``; then it is stopped."""
    place = Path(tempfile.mkdtemp(dir=folder))
    with (errors or Path(os.devnull)).open("w") as stderr:
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, TRAIN, *options, *LONG_ENOUGH, f"hydra.run.dir={place / 'run'}"],
            cwd=folder, env=environment(timed=errors is not None), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=stderr,
        )  # fmt: skip
        try:
            while not has_row(place / "run" / "metrics.csv"):
                if process.poll() is not None or time.perf_counter() - started > PATIENCE:
                    raise RuntimeError(f"no step was made with {' '.join(options)}")
                time.sleep(0.005)
            return time.perf_counter() - started
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def has_row(metrics: Path) -> bool:
    """Whether a row stands below the names of the columns."""
    try:
        return metrics.read_bytes().count(b"\n") > 1
    except FileNotFoundError:
        return False


def environment(*, timed: bool) -> dict[str, str]:
    """This process's, with this checkout's code, without what would set threads or open W&B runs online."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MKL_", "WANDB_"))}
    timing = {"PYTHONPROFILEIMPORTTIME": "1"} if timed else {}
    return {**inherited, "PYTHONPATH": str(ROOT / "src"), "WANDB_MODE": "offline", **timing}


def imports(errors: Path) -> tuple[float, dict[str, float]]:
    """Seconds that imports took, of all processes together, and those of the packages that took most."""
    found: collections.Counter[str] = collections.Counter()
    for microseconds, module in IMPORTED.findall(errors.read_text(encoding="utf-8", errors="replace")):
        found[module.partition(".")[0]] += int(microseconds)
    most = {package: spent / 1e6 for package, spent in found.most_common(MOST_SHOWN)}
    return found.total() / 1e6, most


def measure(names: Sequence[str], rounds: int, options: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    """A row for each of these commands and for the first step of ``train.py`` with these options."""
    arms = {name: partial(command_seconds, COMMANDS[name], folder) for name in names}
    arms[FIRST_STEP] = partial(first_step_seconds, options, folder)
    for call in arms.values() if rounds > 1 else ():  # reads the files that later ones find in memory
        call()
    taken = interleave(arms, rounds)
    rows = []
    for name, call in arms.items():
        errors = folder / "errors"
        timed = call(errors=errors)
        spent, most = imports(errors)
        rows.append(
            {
                "command": name,
                **{f"seconds_{key}": value for key, value in quartiles(taken[name]).items() if key != "n"},
                "n": rounds,
                "import_share": spent / timed,
                "most_imported_seconds": most,
            }
        )
    return rows


def show(rows: Sequence[dict[str, Any]]) -> None:
    table = Table("command", "seconds", "quartiles", "n", "imports", "most of them")
    for row in rows:
        most = ", ".join(f"{name} {spent:.2f}" for name, spent in row["most_imported_seconds"].items())
        spread = f"{row['seconds_low']:.2f} to {row['seconds_high']:.2f}"
        table.add_row(
            row["command"], f"{row['seconds_median']:.2f}", spread, str(row["n"]),
            f"{row['import_share']:.0%}", most,
        )  # fmt: skip
    Console().print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, quick="few commands, once each")
    asked = parser.parse_args(arguments)
    names, rounds = (QUICK, 1) if asked.quick else (tuple(COMMANDS), 3)
    folder = Path(tempfile.mkdtemp(prefix="start-"))
    options = ("model=nano", "logger=none", "vocab=byte") if asked.quick else ()
    try:
        with watched() as seen:
            rows = measure(names, rounds, options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show(rows)
    write("start", rows, seen, {"rounds": rounds, "first_step_options": list(options)}, asked.out)


if __name__ == "__main__":
    main()
