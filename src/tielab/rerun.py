"""Repeat a run from its folder and say what differs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tielab import launch
from tielab.errors import FAILED, FINISHED, RequestError
from tielab.record import RUN_CONFIG_NAME, Record, read_record
from tielab.report.pairing import lookup
from tielab.trust import read_run_yaml

RESULTS = (
    "weights_hash", "validation.nats", "validation.perplexity", "validation.bits_per_byte",
    "best_validation.bits_per_byte", "train_loss", "initial_loss", "tokens_seen", "parameters.total",
)  # fmt: skip
"""Equal bit for bit where the circumstances are."""

CIRCUMSTANCES = (
    "config_hash", "code_hash", "versions", "device", "num_threads", "num_processes",
    "data.corpus_hash", "data.tokenizer_hash", "body_hash", "batch_hash", "init.files",
)  # fmt: skip
"""What a result may depend on."""


@dataclass
class Repetition:
    """Two records of one config, side by side."""

    differing_results: list[str]
    differing_circumstances: list[str]

    @property
    def reproduced(self) -> bool:
        return not self.differing_results

    @property
    def unexplained(self) -> bool:
        """Results differ although every recorded circumstance is the same."""
        return bool(self.differing_results) and not self.differing_circumstances


def compare_records(original: Record, repeated: Record) -> Repetition:
    """What differs between two records, as lines that name both values."""

    def differing(names: Sequence[str]) -> list[str]:
        values = [(name, lookup(original, name), lookup(repeated, name)) for name in names]
        return [f"{name}: {old} -> {new}" for name, old, new in values if old != new]

    return Repetition(differing(RESULTS), differing(CIRCUMSTANCES))


@dataclass
class Rerun:
    """How a repetition ended, and how it compares."""

    status: int
    """Exit status. 0: as before, or the changed circumstances are named. 1: the repetition failed, or its
    results differ with nothing to explain it."""
    original: Record
    folder: Path | None = None
    """Of the repetition; None if there is none."""
    repeated: Record | None = None

    @property
    def comparison(self) -> Repetition | None:
        """None unless both runs finished."""
        if self.repeated is None or not self.repeated.finished or not self.original.finished:
            return None
        return compare_records(self.original, self.repeated)


def rerun(run: Path, overrides: Sequence[str]) -> Rerun:
    """Repeat a run into a new folder.

    Raises:
        RequestError: no run is there, or its config is refused.
    """
    original = read_record(run)
    if not (run / RUN_CONFIG_NAME).is_file():
        raise RequestError(f"{run}: no {RUN_CONFIG_NAME} there; give the folder of a run")
    read_run_yaml(run / RUN_CONFIG_NAME)  # so that a wrong one is refused before anything starts
    # With the config groups beside it, where this is a checkout, so that overrides may choose an option.
    groups = Path(__file__).parents[2] / "conf"
    where = ["--config-dir", str(run.resolve()), "--config-name", Path(RUN_CONFIG_NAME).stem]
    status = launch.main(groups if groups.is_dir() else run.resolve(), [*where, *overrides])
    if status != FINISHED or not launch.outcome.folders:
        return Rerun(status, original, next(iter(launch.outcome.folders[-1:]), None))
    folder = launch.outcome.folders[-1]
    done = Rerun(FINISHED, original, folder, read_record(folder))
    if done.comparison is not None and done.comparison.unexplained:
        done.status = FAILED
    return done


def as_json(done: Rerun) -> dict[str, Any]:
    """The comparison as plain values; ``differing`` lists what has another value than before."""
    found = done.comparison
    return {
        "status": done.status,
        "original": done.original.run_id,
        "repeated": None if done.repeated is None else done.repeated.run_id,
        "folder": None if done.folder is None else str(done.folder),
        "reproduced": None if found is None else found.reproduced,
        "unexplained": None if found is None else found.unexplained,
        "differing_results": [] if found is None else found.differing_results,
        "differing_circumstances": [] if found is None else found.differing_circumstances,
    }


def describe(done: Rerun) -> list[str]:
    """The comparison in words; none where there is no repetition."""
    original, repeated = done.original, done.repeated
    if repeated is None:
        return []
    if not original.finished:
        return [f"{original.run_id} was {original.status}: there is nothing to compare with"]
    repetition = compare_records(original, repeated)
    if repetition.reproduced:
        lines = [f"reproduced bit for bit: weights {repeated.weights_hash}, and every metric"]
    else:
        lines = ["the results differ:", *(f"  {line}" for line in repetition.differing_results)]
    if repetition.differing_circumstances:
        lines += ["what was not the same:", *(f"  {line}" for line in repetition.differing_circumstances)]
    elif not repetition.reproduced:
        lines.append("config, code, versions, device, threads and data are the same: this should not happen")
    return lines
