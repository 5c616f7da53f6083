"""Every run of a comparison as a row: what the means, differences and figures are made of."""

from typing import TYPE_CHECKING, Any

from tielab.record import Record
from tielab.report.arms import arm_of
from tielab.report.collect import CollectedRun
from tielab.report.compare import Comparison
from tielab.report.pairing import lookup
from tielab.report.settings import seed_label, seeds_of, study_phase
from tielab.report.table import word_perplexity

if TYPE_CHECKING:
    import pandas as pd

FIELDS = {
    "bits_per_byte": "validation.bits_per_byte",
    "perplexity": "validation.perplexity",
    "learning_rate": "config.optimizer.learning_rate",
    "parameters": "parameters.total",
    "flops_per_token_train": "flops_per_token.train",
    "tokens_seen": "tokens_seen",
    "epochs": "epochs",
    "tokens_per_second": "throughput.median",
    "peak_memory_bytes": "peak_memory_bytes",
    "train_loss": "train_loss",
    "initial_loss": "initial_loss",
    "seconds": "seconds",
    "run_id": "run_id",
    "config_hash": "config_hash",
    "weights_hash": "weights_hash",
    "code_hash": "code_hash",
    "commit": "commit",
}
"""Columns with the record's field each of them holds."""
COLUMNS = (
    "arm", "seed", "phase", "learning_rate", "bits_per_byte", "perplexity", "word_perplexity", "parameters",
    "flops_per_token_train", "train_flops", "tokens_seen", "epochs", "tokens_per_second",
    "peak_memory_bytes", "train_loss", "initial_loss", "seconds", "folder", "run_id", "config_hash",
    "weights_hash", "code_hash", "commit",
)  # fmt: skip


def runs_table(comparison: Comparison) -> "pd.DataFrame":
    """A row for each run that gives a number, once each: the setting columns, then ``COLUMNS``.

    The compared runs come in the order of the table, then those that served to choose a learning rate. A
    run that stands on several matching axes is listed on the first.
    """
    import pandas as pd

    settings = comparison.setting_columns
    # A setting column of the same name has the same values.
    names = [*settings, *(name for name in COLUMNS if name not in settings)]
    rows = [values | _row(run) for run, values in comparison.runs]
    return pd.DataFrame({name: pd.Series([row.get(name) for row in rows], dtype=object) for name in names})


def _row(run: CollectedRun) -> dict[str, Any]:
    record = run.record
    return {name: lookup(record, field) for name, field in FIELDS.items()} | {
        "arm": arm_of(run),
        "seed": seed_label(seeds_of(record)),
        "phase": study_phase(record),
        "word_perplexity": word_perplexity(record),
        "train_flops": _train_flops(record),
        "folder": str(run.folder),
    }


def _train_flops(record: Record) -> int | None:
    """FLOPs of the whole training: those of a token times the tokens seen."""
    per_token = lookup(record, "flops_per_token.train")
    if per_token is None or record.tokens_seen is None:
        return None
    return int(per_token * record.tokens_seen)
