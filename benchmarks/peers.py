"""Tokens per second of whole training loops on the CPU: tielab's ``train.py`` and its peers'.

Every tool runs as a process of its own, in the better of its modes (eager, ``torch.compile``), on the same
shape, tokens, optimizer, batch and threads. They take turns: one trains, all others are stopped.
"""

import argparse
import contextlib
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import measure
from benchmarks.arms import (
    COMPILED,
    EAGER,
    NUM_THREADS,
    ROOT,
    SHAPES,
    Arm,
    Shape,
    Tools,
    found_versions,
    nanogpt_version,
    start,
    write_tokens,
)
from benchmarks.turns import MIN_SECONDS, MIN_STEPS, DiedError, Turns

OURS, OURS_BF16 = "tielab", "tielab bf16"
NANOGPT, NANOGPT_KEEPING = "nanoGPT", "nanoGPT, freed memory kept"
PEERS = (NANOGPT, "transformers", "litgpt", "dnnlpy")
TOOLS = (OURS, *PEERS)
WARMUP_STEPS = 4
NUM_STARTED_AT_ONCE = 2
"""Starting is not measured."""


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def absent(tools: Tools, versions: dict[str, str], dnnlpy: dict[str, str]) -> dict[str, str]:
    """Peers that are not there, and how to get each."""
    found: dict[str, str] = {}
    if tools.nanogpt is None or not (tools.nanogpt / "train.py").is_file():
        found[NANOGPT] = "git clone https://github.com/karpathy/nanoGPT and give its folder as --nanogpt"
    for name, needed in (
        ("transformers", ("transformers", "accelerate")),
        ("litgpt", ("litgpt", "lightning")),
    ):
        if not all(package in versions for package in ("torch", *needed)):
            found[name] = f"pip install {' '.join(needed)} for the Python given as --peer-python"
    if "dnnlpy" not in dnnlpy:
        found["dnnlpy"] = "pip install dnnlpy for a Python of 3.12 or later and give that as --dnnlpy"
    return found


def candidates(shape: Shape, chosen: Sequence[str]) -> list[Arm]:
    """Every tool in each of its modes; tielab in bfloat16 too where the model is wide."""
    arms = [Arm(tool, mode) for tool in chosen for mode in (EAGER, COMPILED)]
    if OURS in chosen and shape.name == "wide":
        arms += [Arm(OURS_BF16, mode, ("trainer.precision=bf16-mixed",)) for mode in (EAGER, COMPILED)]
    return arms


class Stage:
    """The started arms of one shape, all stopped but for the one that has its turn."""

    def __init__(self, shape: Shape, tools: Tools, folder: Path, inductor: Path):
        self.shape, self._tools, self._folder, self._inductor = shape, tools, folder, inductor
        self._tokens = folder / "tokens"
        self._turns: dict[Arm, Turns] = {}
        self._seconds: dict[Arm, float] = {}

    def __enter__(self) -> "Stage":
        write_tokens(self.shape, self._tokens)
        return self

    def __exit__(self, *args: object) -> None:
        for arm in [*self._turns]:
            self.end(arm)

    @property
    def arms(self) -> list[Arm]:
        return [*self._turns]

    def start(self, arms: Sequence[Arm]) -> None:
        """Start arms, a few at a time, and stop each when it is warm; one that dies is left out."""
        for first in range(0, len(arms), NUM_STARTED_AT_ONCE):
            together = arms[first : first + NUM_STARTED_AT_ONCE]
            for arm in together:
                place = self._folder / f"{len(list(self._folder.iterdir()))}"
                self._turns[arm] = start(arm, self.shape, self._tools, self._tokens, place, self._inductor)
            for arm in together:
                with self._left_out_if_dead(arm):
                    self._turns[arm].warm_up(WARMUP_STEPS)

    def rate(self, arm: Arm) -> float | None:
        """Tokens per second in one turn; None if the arm died in it."""
        rate = None
        with self._left_out_if_dead(arm):
            asked = (MIN_STEPS + 1.5) * self._seconds.get(arm, 0.0)
            seconds = self._turns[arm].turn(max(MIN_SECONDS, asked))
            self._seconds[arm] = statistics.median(seconds)
            rate = self.shape.tokens_per_step * len(seconds) / sum(seconds)
        return rate

    def end(self, arm: Arm) -> None:
        turns = self._turns.pop(arm)
        turns.__exit__()

    @contextlib.contextmanager
    def _left_out_if_dead(self, arm: Arm) -> Iterator[None]:
        try:
            yield
        except DiedError as error:
            say(f"{self.shape.name}: {arm.name}: left out: {error}")
            self.end(arm)


def choose_modes(stage: Stage) -> dict[str, dict[str, float]]:
    """Tokens per second of every mode in two turns by tool; only the best mode of each stays.

    The modes of a tool take turns at once, there and back: they are closer to each other than the machine is
    to itself a minute later.
    """
    found: dict[str, dict[str, float]] = {}
    for tool in dict.fromkeys(arm.tool for arm in stage.arms):
        modes = [arm for arm in stage.arms if arm.tool == tool]
        rates: dict[str, list[float | None]] = {arm.mode: [] for arm in modes}
        for arm in [*modes, *modes[::-1]]:
            rates[arm.mode].append(stage.rate(arm) if arm in stage.arms else None)
        found[tool] = {m: statistics.fmean(r for r in turns if r) for m, turns in rates.items() if all(turns)}
    for arm in stage.arms:
        if found[arm.tool][arm.mode] < max(found[arm.tool].values()):
            stage.end(arm)
    return found


def compare(shape: Shape, chosen: Sequence[str], tools: Tools, rounds: int) -> list[dict[str, Any]]:
    """The rows of one shape."""
    inductor = ROOT / "outputs" / "torchinductor"
    with tempfile.TemporaryDirectory() as folder, Stage(shape, tools, Path(folder), inductor) as stage:
        stage.start(candidates(shape, chosen))
        trials = choose_modes(stage)
        stage.start(
            [
                replace(arm, tool=NANOGPT_KEEPING, keeps_freed=True)
                for arm in stage.arms
                if arm.tool == NANOGPT
            ]
        )
        found: dict[Arm, list[float]] = {arm: [] for arm in stage.arms}
        for number in range(rounds):
            say(f"{shape.name}: round {number + 1} of {rounds}")
            for arm in stage.arms[:: -1 if number % 2 else 1]:
                rate = stage.rate(arm)
                if rate is not None:
                    found[arm].append(rate)
        whole = {arm: found[arm] for arm in stage.arms}
    return table_rows(shape, whole, trials)


def table_rows(
    shape: Shape, found: dict[Arm, list[float]], trials: dict[str, dict[str, float]]
) -> list[dict[str, Any]]:
    """A row for each arm; a tool in its other mode has the figure of its trial only."""
    ours = next((rates for arm, rates in found.items() if arm.tool == OURS), None)
    nanogpt = next((rates for arm, rates in found.items() if arm.tool == NANOGPT), None)
    return [
        {
            "shape": shape.name,
            "tool": arm.tool,
            "mode": arm.mode,
            "tokens_per_second": measure.quartiles(rates),
            "tielab_over_it": None if ours is None else measure.ratios(ours, rates),
            "over_plain_nanogpt": measure.ratios(rates, nanogpt) if arm.keeps_freed and nanogpt else None,
            "trial_tokens_per_second": trials.get(arm.tool, {}),
        }
        for arm, rates in found.items()
    ]


def render(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(
        "shape", "tool", "mode", "tokens/s", "tielab is … times as fast", title="whole training loops"
    )
    for row in rows:
        rate, ratio = row["tokens_per_second"], row["tielab_over_it"]
        table.add_row(
            row["shape"],
            row["tool"],
            row["mode"],
            f"{rate['median']:,.0f} ({rate['low']:,.0f} to {rate['high']:,.0f})",
            "" if ratio is None else f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})",
        )
    return table


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = measure.command_line(__doc__, quick="a tiny shape, one round")
    names = [name for name in SHAPES if name != "tiny"]
    parser.add_argument("--shapes", default=",".join(names), help="of " + ", ".join(SHAPES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(TOOLS), help="of " + ", ".join(TOOLS))
    parser.add_argument("--nanogpt", type=Path, help="folder of nanoGPT")
    parser.add_argument(
        "--peer-python", type=Path, default=Path(sys.executable), help="with transformers, litgpt"
    )
    parser.add_argument("--dnnlpy", type=Path, help="a Python, 3.12 or later, with dnnlpy")
    asked = parser.parse_args(arguments)
    asked.shapes = asked.shapes.split(",") if not asked.quick else ["tiny"]
    asked.only = asked.only.split(",")
    asked.rounds = 1 if asked.quick else asked.rounds
    for name in {*asked.shapes} - {*SHAPES} | {*asked.only} - {*TOOLS}:
        parser.error(f"there is no {name}")
    return asked


def main(arguments: Sequence[str] | None = None) -> None:
    asked = parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # or the stopped processes would stay
    tools = Tools(*(path and path.absolute() for path in (asked.peer_python, asked.nanogpt, asked.dnnlpy)))
    versions = found_versions(asked.peer_python)
    dnnlpy = found_versions(asked.dnnlpy) if asked.dnnlpy else {}
    missing = {name: how for name, how in absent(tools, versions, dnnlpy).items() if name in asked.only}
    for name, how in missing.items():
        say(f"{name}: left out; to have it: {how}")
    chosen = [name for name in asked.only if name not in missing]
    rows: list[dict[str, Any]] = []
    with measure.watched() as seen:
        for name in asked.shapes:
            rows += compare(SHAPES[name], chosen, tools, asked.rounds)
    conditions = {
        "threads": NUM_THREADS,
        "rounds": asked.rounds,
        "shapes": {name: vars(SHAPES[name]) for name in asked.shapes},
        "peers": versions,
        "dnnlpy": dnnlpy,
        "nanogpt": nanogpt_version(tools.nanogpt) if tools.nanogpt else None,
        "left_out": missing,
    }
    Console().print(render(rows))
    print(measure.write("peers", rows, seen, conditions, asked.out))


if __name__ == "__main__":
    main()
