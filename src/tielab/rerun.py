"""Repeat a run from its folder and say what differs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tielab import launch
from tielab.errors import FAILED, FINISHED, RequestError, printable
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


def rerun(run: Path, overrides: Sequence[str]) -> int:
    """Repeat a run into a new folder, print what differs, and return the exit status.

    0: as before, or the changed circumstances are named. 1: the repetition failed, or its results
    differ with nothing to explain it.
    """
    original = read_record(run)
    if not (run / RUN_CONFIG_NAME).is_file():
        raise RequestError(f"{run}: no {RUN_CONFIG_NAME} there; give the folder of a run")
    read_run_yaml(run / RUN_CONFIG_NAME)  # so that a wrong one is refused before anything starts
    # With the config groups beside it, where this is a checkout, so that overrides may choose an option.
    groups = Path(__file__).parents[2] / "conf"
    where = ["--config-dir", str(run.resolve()), "--config-name", Path(RUN_CONFIG_NAME).stem]
    status = launch.main(groups if groups.is_dir() else run.resolve(), [*where, *overrides])
    if status != FINISHED:
        return status
    repeated = read_record(launch.outcome.folders[-1])
    repetition = compare_records(original, repeated)
    print("\n".join(printable(line) for line in describe(repetition, original, repeated)))
    return FAILED if repetition.unexplained else FINISHED


def describe(repetition: Repetition, original: Record, repeated: Record) -> list[str]:
    """The comparison in words."""
    if not original.finished:
        return [f"{original.run_id} was {original.status}: there is nothing to compare with"]
    if repetition.reproduced:
        lines = [f"reproduced bit for bit: weights {repeated.weights_hash}, and every metric"]
    else:
        lines = ["the results differ:", *(f"  {line}" for line in repetition.differing_results)]
    if repetition.differing_circumstances:
        lines += ["what was not the same:", *(f"  {line}" for line in repetition.differing_circumstances)]
    elif not repetition.reproduced:
        lines.append("config, code, versions, device, threads and data are the same: this should not happen")
    return lines
