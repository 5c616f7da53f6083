"""A study: choose the learning rate of each combination of the swept keys, then compare at these rates.

Each combination, a cell, has a grid of rates of its own, run on seeds that are not reported: the arms do not
want the same rate, and a rate chosen on the reported seeds would favour whichever was lucky. The best must be
interior, with a worse rate on both sides; else the grid is extended. Imports no torch.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tielab.config import RATE_KEY, config_hash
from tielab.errors import RequestError

SEED_KEY = "seed"
PHASE_KEY = "study.phase"
MAX_EXTENSIONS = 4
"""Rates that are added to a cell's grid before it is given up."""

Overrides = list[str]


def is_to_be_tuned(config: Any) -> bool:
    """Whether a config asks for a study, and is not of one of its runs."""
    return config["study"]["tune"] is not None and config["study"]["phase"] is None


def check_phase(asked: Sequence[Any], written: str | None) -> None:
    """Raise RequestError if a phase is asked for that does not stand in the ``run.yaml`` that is repeated.

    Args:
        asked: every value that the request gives the phase.
        written: the phase in that ``run.yaml``.
    """
    if any(phase not in (None, written) for phase in asked):
        raise RequestError(f"{PHASE_KEY} is written by the tool; ask with study.tune=lr")


def check_study_is_asked_for(config: dict[str, Any], overrides: Sequence[str]) -> None:
    """Raise RequestError if the request itself says how to tune, and nothing is tuned.

    Args:
        config: of a run of the request.
        overrides: of that run.
    """
    given = [override.partition("=")[0] for override in overrides]
    lost = next((key for key in given if key in ("study.rates", "study.tune_seeds")), None)
    if lost is not None and config["study"]["tune"] is None:
        raise RequestError(f"{lost} does nothing where nothing is tuned; add study.tune=lr or drop it")


def leave_study(config: dict[str, Any], original: dict[str, Any]) -> None:
    """Let a repetition that computes something else than a run of a study be none of the study's runs.

    Its rate was chosen for the original, and its seed may be one that chooses.

    Args:
        config: of the repetition; changed in place.
        original: of the run that is repeated.
    """
    if original["study"]["phase"] is not None and config_hash(config) != config_hash(original):
        config["study"] |= {"tune": None, "phase": None}


class Cell:
    """One combination of the swept keys, and what its runs of different learning rates gave.

    Args:
        name: tells it from the others.
        overrides: all but seed and rate.
        rates: the grid, ascending.
        tune_seeds: each rate is run with all of these.
    """

    def __init__(self, name: str, overrides: Overrides, rates: Sequence[float], tune_seeds: Sequence[int]):
        self.name = name
        self._overrides = overrides
        self._grid = list(rates)
        self._tune_seeds = list(tune_seeds)
        self._values: dict[float, list[float | None]] = {}

    def tune_jobs(self, rate: float) -> list[Overrides]:
        """The jobs of one rate, in the order in which ``tell`` takes their values."""
        return [
            [*self._overrides, f"{SEED_KEY}={seed}", f"{RATE_KEY}={rate!r}", "study.phase=tune"]
            for seed in self._tune_seeds
        ]

    def report_jobs(self, seeds: Sequence[Overrides], rate: float | None = None) -> list[Overrides]:
        """The jobs that are compared, at the best rate or at another."""
        rate = self.best if rate is None else rate
        return [[*self._overrides, *seed, f"{RATE_KEY}={rate!r}", "study.phase=report"] for seed in seeds]

    def tell(self, rate: float, values: Sequence[float | None]) -> None:
        """Bits per byte of each seed at a rate: inf of a run that diverged, None of one that failed."""
        self._values[rate] = list(values)

    def untried(self) -> list[float]:
        """The rates to run next: the grid, then one more at a time while the best of all is an end."""
        grid = [rate for rate in self._grid if rate not in self._values]
        if grid or not self._is_complete or self.is_settled:
            return grid
        if len(self._values) - len(self._grid) >= MAX_EXTENSIONS:
            return []
        return [self._beyond(low=self.best == self._tried[0])]

    def possible_rates(self) -> list[float]:
        """Every rate that may come to be tried."""
        rates = sorted(self._grid)
        for low in (True, False):
            for _ in range(MAX_EXTENSIONS):
                end, inner = (rates[0], rates[1]) if low else (rates[-1], rates[-2])
                rates = sorted([*rates, extended(end, inner)])
        return rates

    def _beyond(self, low: bool) -> float:
        end, inner = self._tried[:2] if low else self._tried[:-3:-1]
        return extended(end, inner)

    @property
    def _tried(self) -> list[float]:
        return sorted(self._values)

    @property
    def _is_complete(self) -> bool:
        """Whether every run of every rate so far gave a number or diverged."""
        return all(value is not None for values in self._values.values() for value in values)

    def curve(self) -> dict[float, float]:
        """Rate -> mean bits per byte over the seeds; inf where one diverged, nan where one failed."""
        return {
            rate: sum(math.nan if v is None else v for v in self._values[rate]) / len(self._values[rate])
            for rate in self._tried
        }

    @property
    def best(self) -> float:
        """The rate of the lowest mean, the smaller one of equals."""
        curve = self.curve()
        return min(curve, key=lambda rate: (curve[rate], rate))

    @property
    def is_settled(self) -> bool:
        """Whether the best rate is known and has a rate on either side that was tried and is worse."""
        return self._is_complete and bool(self._values) and self.best in self._tried[1:-1]

    def describe(self) -> str:
        """The curve and what was chosen, in a line."""
        curve = ", ".join(f"{rate:.4g}: {value:.4f}" for rate, value in self.curve().items())
        line = (
            f"{self.name}: bits/byte by {RATE_KEY}, mean of {len(self._tune_seeds)} seeds: {curve or 'none'}"
        )
        if self.is_settled:
            return f"{line} -> {self.best:.4g}"
        if not self._is_complete or not self._values or any(rate not in self._values for rate in self._grid):
            return f"{line}; not chosen, since runs are missing"
        return (
            f"{line}; NOT chosen: the best, {self.best:.4g}, is still an end after {MAX_EXTENSIONS} more "
            "rates; move study.rates"
        )


def extended(end: float, inner: float) -> float:
    """The rate beyond an end of a grid, as far from it as its neighbour is; short to write."""
    return float(f"{end * end / inner:.6g}")


def open_cells(batch: Sequence[Overrides], study: dict[str, Any]) -> list[Cell]:
    """A cell for each combination of overrides."""
    shared = set.intersection(*map(set, batch))
    names = [" ".join(o for o in overrides if o not in shared) or "all jobs" for overrides in batch]
    return [
        Cell(name, overrides, study["rates"], study["tune_seeds"])
        for name, overrides in zip(names, batch, strict=True)
    ]


def check_keys(swept: Sequence[str], given: Sequence[str]) -> None:
    """Raise RequestError if a study is asked for keys that it sets itself.

    Args:
        swept: keys with several values.
        given: all keys of the request.
    """
    if RATE_KEY in given:
        raise RequestError(f"study.tune=lr chooses {RATE_KEY} itself; drop it, or set study.rates")
    wrong = next((key for key in swept if key.startswith("study.") or key.endswith(".seed")), None)
    if wrong is not None:
        raise RequestError(f"{wrong} cannot be swept with study.tune=lr; seeds are swept as seed=0,1,2")


def check_seeds(reported: Sequence[dict[str, Any]]) -> None:
    """Raise RequestError if a run that is reported shares a seed with one that chose its rate."""
    for config in reported:
        seed, tune_seeds = config["seed"], config["study"]["tune_seeds"]
        if seed in tune_seeds:
            raise RequestError(
                f"seed={seed} is one of study.tune_seeds={tune_seeds}, on which the rate is chosen; "
                "report others"
            )
        for key in ("model", "data"):
            if config[key]["seed"] != seed:
                raise RequestError(
                    f"{key}.seed={config[key]['seed']} differs from seed={seed}; with study.tune=lr it "
                    "follows seed: drop it"
                )


def possible_hashes(cells: Sequence[Cell], configs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The config hash of every job that a study may come to have.

    Args:
        configs: one of each combination and seed, at whatever rate.
    """
    rates = dict.fromkeys(rate for cell in cells for rate in cell.possible_rates())
    for config in configs:
        changed = copy.deepcopy(config)
        for rate in rates:
            changed["optimizer"]["learning_rate"] = rate
            yield config_hash(changed)


def tune(
    cells: Sequence[Cell],
    run: Callable[[list[Overrides]], list[float | None]],
    stopped: Callable[[], bool],
) -> None:
    """Run the grids of all cells, and extend each until its best rate is interior or it is given up.

    Args:
        run: runs jobs, and returns their bits per byte as ``Cell.tell`` takes them.
        stopped: whether no more jobs are to be begun.
    """
    while not stopped():
        asked = [(cell, rate) for cell in cells for rate in cell.untried()]
        if not asked:
            return
        for cell, rate in asked:
            if cell.curve():  # the grid is done: this one is beyond it
                print(
                    f"{cell.name}: the best rate, {cell.best:.4g}, is an end: {rate:.4g} as well", flush=True
                )
        jobs = [cell.tune_jobs(rate) for cell, rate in asked]
        values = iter(run([job for some in jobs for job in some]))
        for (cell, rate), some in zip(asked, jobs, strict=True):
            cell.tell(rate, [next(values) for _ in some])
