"""Search for the best values of continuous keys, one study per arm and setting of the sweep.

The studies lie beside the jobs in ``study.jsonl`` (Optuna's journal), so that a search goes on where it
stopped, and with more trials if more are asked for. Imports no torch.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tielab.errors import RequestError
from tielab.folder import State
from tielab.jobs import objective
from tielab.sweep import STOPPED_NAME, STUDY_NAME, Job, Sweep, identity_of

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class Interval:
    """A key to search, ``low <= value <= high``."""

    key: str
    low: float
    high: float
    log: bool
    """Whether it is searched on a logarithmic scale."""


class Cell:
    """One combination of the swept keys, with the study that searches the others for it."""

    def __init__(self, name: str, overrides: list[str], study: "optuna.Study", intervals: Sequence[Interval]):
        import optuna

        self.name = name
        self.overrides = overrides
        self._study = study
        self._distributions: dict[str, optuna.distributions.BaseDistribution] = {
            i.key: optuna.distributions.FloatDistribution(i.low, i.high, log=i.log) for i in intervals
        }
        self._tried: set[int] = set()

    def next_trials(self, num_trials: int, at_most: int) -> list[tuple[int, list[str]]]:
        """Trials to run now, as number and overrides: first those begun earlier and not finished."""
        import optuna

        numbers = {}
        for known in self._study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
            if known.params.keys() != self._distributions.keys():  # torn by a kill, and never run
                self._study.tell(known.number, state=optuna.trial.TrialState.FAIL)
            elif known.number not in self._tried:
                numbers[known.number] = known.params
        while len(numbers) < at_most and self._num_trials() < num_trials:
            trial = self._study.ask(self._distributions)
            numbers[trial.number] = trial.params
        chosen = dict(list(numbers.items())[:at_most])
        self._tried |= chosen.keys()
        return [
            (number, [*self.overrides, *(f"{key}={value!r}" for key, value in params.items())])
            for number, params in chosen.items()
        ]

    def _num_trials(self) -> int:
        """Those that were or will be run."""
        return sum(trial.state.name != "FAIL" for trial in self._study.get_trials(deepcopy=False))

    @property
    def has_value(self) -> bool:
        """Whether some trial gave a number."""
        return any(math.isfinite(value) for value in self._values())

    def _values(self) -> list[float]:
        return [t.value for t in self._study.get_trials(deepcopy=False) if t.value is not None]

    def tell(self, number: int, state: State) -> None:
        """Give a trial its bits per byte, infinity if it diverged; one that crashed stays open."""
        if state.status in ("finished", "diverged"):
            self._study.tell(number, objective(state.record))

    def describe(self) -> str:
        """The best trial in words."""
        values = self._values()
        if not self.has_value:
            return f"{self.name}: no trial of {len(values)} gave a number"
        best = self._study.best_trial
        found = ", ".join(f"{key}={value:.4g}" for key, value in best.params.items())
        num_diverged = sum(map(math.isinf, values))
        diverged = f", {num_diverged} diverged" if num_diverged else ""
        return f"{self.name}: best {found} ({best.value:.4f} bits/byte, {len(values)} trials{diverged})"


def open_cells(
    sweep: Sweep, batch: Sequence[list[str]], intervals: Sequence[Interval], seed: int
) -> list[Cell]:
    """The studies of a sweep's folder, new or as they were left."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = JournalStorage(JournalFileBackend(str(sweep.folder / STUDY_NAME)))
    cells = []
    shared = set.intersection(*map(set, batch))
    for overrides in batch:
        study = optuna.create_study(
            storage=storage,
            study_name=" ".join(identity_of(overrides)) or "all",
            direction="minimize",
            load_if_exists=True,
        )
        name = " ".join(override for override in overrides if override not in shared) or "all jobs"
        # Counted on from the trials there are, so that a search that is resumed draws new ones.
        num_done = len(study.get_trials(deepcopy=False))
        study.sampler = optuna.samplers.TPESampler(seed=seed + num_done, constant_liar=True)
        cells.append(Cell(name, overrides, study, intervals))
    return cells


def search(
    sweep: Sweep,
    cells: Sequence[Cell],
    num_trials: int,
    at_once: int,
    run: Callable[[list[list[str]]], list[Job]],
) -> None:
    """Run trials of every cell until each has ``num_trials``.

    Args:
        at_once: trials of one cell that are asked for before any is told.
        run: runs the jobs of some overrides, and returns them in the same order.
    """
    while not (sweep.folder / STOPPED_NAME).exists():
        asked = [(cell, *trial) for cell in cells for trial in cell.next_trials(num_trials, at_once)]
        if not asked:
            return
        jobs = run([overrides for _, _, overrides in asked])
        for (cell, number, _), job in zip(asked, jobs, strict=True):
            cell.tell(number, sweep.state(job))


def check_optuna() -> None:
    """Raise RequestError unless Optuna can be imported, in a version that works."""
    try:
        import optuna
    except ImportError:
        raise RequestError("hydra/sweeper=optuna needs the extra: pip install 'tielab[optuna]'") from None
    if int(optuna.__version__.partition(".")[0]) < 4:
        raise RequestError(f"optuna {optuna.__version__} is too old; pip install 'tielab[optuna]'")


def interval_of(key: str, value: Any) -> Interval:
    """The interval of a Hydra override ``key=interval(low,high)`` or ``key=tag(log,interval(low,high))``.

    Raises:
        RequestError: empty, or on a logarithmic scale and not above zero.
    """
    low, high, log = float(value.start), float(value.end), "log" in value.tags
    if not low < high:
        raise RequestError(f"{key}=interval({low:g},{high:g}) is empty; give the lower bound first")
    if log and low <= 0:
        raise RequestError(f"{key}=tag(log,interval({low:g},{high:g})): a logarithmic scale begins above 0")
    return Interval(key, low, high, log)
