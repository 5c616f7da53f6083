"""Weights & Biases: one run per training, online if it can be, offline otherwise, never a prompt.

wandb itself is imported inside the functions: a run without it does not pay for it, and its settings
must be in the environment first.
"""

import logging
import os
import re
from argparse import Namespace
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import WandbLogger

from tielab.diagnostics.columns import DIAGNOSTIC_COLUMNS
from tielab.errors import RequestError, reason_of
from tielab.folder import quoted
from tielab.record import Record
from tielab.report.arms import arm_name
from tielab.tracking.metrics_csv import METRIC_COLUMNS
from tielab.tracking.names import ARM, DEVICE, PHASE
from tielab.tracking.rank import is_global_rank_zero
from tielab.tracking.wandb_mode import asked_mode, chosen_mode
from tielab.tracking.wandb_start import look_sooner

log = logging.getLogger(__name__)

ENVIRONMENT_DEFAULTS = {
    "WANDB_SILENT": "true",
    "WANDB_INIT_TIMEOUT": "20",
    "WANDB_FINISH_TIMEOUT": "120",
    "WANDB_FINISH_TIMEOUT_RAISES": "true",
    "WANDB_X_TRANSACTION_LOG_FLUSH_INTERVAL": "1",
}
"""Times are seconds. wandb's own are 90, no limit and 15: a killed run would lose its last 15 s."""

SUMMARIES = {
    "train/loss": "min,last",
    "val/loss": "min,last",
    "val/perplexity": "min,last",
    "val/word_perplexity": "min,last",
    "val/bits_per_byte": "min,last",
    "tokens_per_second": "mean,last",
}
"""What W&B keeps of a whole curve, where it is not just the last value."""

RECORD_SUMMARY = (
    "parameters", "flops_per_token", "initial_loss", "train_loss", "validation", "best_validation",
    "stride_validations", "throughput", "peak_memory_bytes", "tokens_seen", "epochs", "num_steps",
    "num_processes", "tie_observed", "seconds", "seconds_by_phase",
)  # fmt: skip
"""Fields of the record that the run table of W&B shows, nested as in record.json."""

INTERNAL_LOG = Path("logs", "debug-internal.log")
ROWS_REFUSED = "filestream: fatal error"
"""What wandb logs there, and nowhere else, when it gives up sending; ``finish`` then succeeds at once."""


class RunLogger(WandbLogger):
    """A WandbLogger whose config is what it was made with, and nothing later."""

    def log_hyperparams(self, params: dict[str, Any] | Namespace) -> None:
        """Do nothing: a second copy of the hyper-parameters could differ from the config."""


def wandb_logger(
    *,
    project: str,
    entity: str | None,
    mode: str,
    save_dir: str | Path,
    tags: list[str] | None,
    run_id: str,
    name: str,
    group: str | None,
    job_type: str | None,
    config: dict[str, Any],
    resumed: bool = False,
) -> WandbLogger:
    """A logger with a started W&B run on global rank zero, and a silent one on the other ranks.

    Args:
        mode: ``online``, ``offline`` and ``disabled`` are obeyed. ``auto`` follows WANDB_MODE if that
            is set and not empty; else it is online when a key is configured and the server answers.
        save_dir: Offline runs of all trainings gather in ``<save_dir>/wandb``.
        config: Resolved and nested; ``flat_config`` adds what tables are grouped by.
        resumed: Go on with the run of that id instead of starting one.

    Raises:
        RequestError: the mode is unknown, the key is malformed, wandb takes no such project or tag or a
            second run of this id, or ``online`` was asked for and is impossible.
    """
    arguments: dict[str, Any] = {
        "name": name,
        "save_dir": save_dir,
        "version": run_id,
        "project": project,
        "entity": entity,
        "group": group,
        "job_type": job_type,
        "tags": [str(tag) for tag in tags or []],
        "config": config | flat_config(config),
        "resume": "allow" if resumed else "never",
    }
    if not is_global_rank_zero():
        return RunLogger(**arguments)
    asked = asked_mode(mode)
    Path(save_dir).mkdir(parents=True, exist_ok=True)
    _prepare_process()
    return _start(arguments, asked)


def flat_config(config: dict[str, Any]) -> dict[str, Any]:
    """The keys that tables are grouped and filtered by, at the top level: what the nested ones say."""
    model = config["model"]
    return {
        ARM: arm_name(config),
        PHASE: config["study"]["phase"] or "report",
        "tied": model["tied"],
        "vocab_size": model["vocab_size"],
        "width": model["embed_dim"],
        "seed": config["seed"],
    }


def note_device(logger: WandbLogger, device: str) -> None:
    """Add to a started run's config what it trains on, which is known only when the trainer is built."""
    # A run that goes on may do so on another device.
    logger.experiment.config.update({DEVICE: device}, allow_val_change=True)


def record_summary(record: Record) -> dict[str, Any]:
    """The part of a record that belongs in the run table of W&B, without blanks."""
    return {key: value for key in RECORD_SUMMARY if (value := getattr(record, key)) not in (None, {})}


def finish_wandb(logger: WandbLogger | None, exit_code: int, summary: dict[str, Any] | None = None) -> None:
    """Close the W&B run of this process with its true exit status; never raises.

    Gives up after WANDB_FINISH_TIMEOUT seconds; what did not get through stays on disk.

    Args:
        logger: None: there is nothing to close.
        exit_code: 0 marks the run finished, anything else failed.
        summary: Nested values to add to the run's summary, as ``record_summary`` makes them.
    """
    if logger is None:
        return
    import wandb

    if wandb.run is None:
        return
    folder = Path(wandb.run.dir).parent
    try:
        wandb.run.summary.update(summary or {})
        wandb.run.finish(exit_code=int(exit_code))
    except Exception as error:
        log.warning("W&B run not closed (%s): later, `%s`", reason_of(error), sync_command([folder]))
    else:
        if _were_rows_refused(folder):
            log.warning("W&B has not taken all of the run: later, `%s`", sync_command([folder]))
    try:
        # An offline file is complete only after this.
        wandb.teardown()
    except Exception as error:
        log.warning("W&B did not shut down: %s", reason_of(error))


def offline_hint(save_dir: str | Path, run_id: str) -> str:
    """One line: how to upload an offline run, and how to look at it here without an account."""
    root = Path(save_dir, "wandb")
    named = re.compile(rf"offline-run-\d+_\d+-{re.escape(run_id)}")
    folders = sorted(path for path in root.glob("offline-run-*") if named.fullmatch(path.name))
    if not folders:
        return f"W&B: no offline run {run_id} under {quoted(root.resolve())}"
    return (
        f"W&B offline: upload with `{sync_command(folders)}`; view with `wandb leet {quoted(root.resolve())}`"
    )


def sync_command(folders: list[Path]) -> str:
    """What uploads the runs in these folders, to be typed here."""
    # Without it, `wandb sync` passes over a folder whose run began online, and succeeds.
    online = any(not folder.name.startswith("offline-") for folder in folders)
    return " ".join(
        ["wandb sync", *["--include-online"] * online, *(quoted(folder.resolve()) for folder in folders)]
    )


def _were_rows_refused(folder: Path) -> bool:
    try:
        return ROWS_REFUSED in (folder / INTERNAL_LOG).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _prepare_process() -> None:
    import wandb

    if wandb.run is not None:
        # Left open by an earlier job of this process: Lightning would log into it.
        wandb.run.finish(exit_code=1)
    wandb.teardown()
    look_sooner()
    for key, value in ENVIRONMENT_DEFAULTS.items():
        os.environ.setdefault(key, value)


def _start(arguments: dict[str, Any], asked: str) -> WandbLogger:
    from wandb.errors import AuthenticationError, CommError, UsageError

    mode = chosen_mode(asked)
    try:
        return _open(arguments, mode)
    except (UsageError, ValueError) as error:
        raise RequestError(f"W&B refuses the run: {reason_of(error)}") from None
    except CommError as error:
        if asked == "online" or isinstance(error, AuthenticationError):
            raise RequestError(f"W&B online is impossible: {reason_of(error)}; or use mode offline") from None
        log.warning("W&B did not start online (%s): this run goes on offline", reason_of(error))
        return _open(arguments, "offline")


def _open(arguments: dict[str, Any], mode: str) -> WandbLogger:
    import wandb

    os.environ["WANDB_MODE"] = mode
    if mode == "offline":
        os.environ["WANDB_ERROR_REPORTING"] = "false"
    # Settings that wandb read before the mode was known would stay in force, WANDB_SILENT among them.
    wandb.teardown()
    wandb.setup()
    logger = RunLogger(**arguments)
    run = logger.experiment
    _define_metrics(run)
    if mode == "online":
        log.info("W&B: %s", run.url)
    return logger


def _define_metrics(run: Any) -> None:
    """Draw every metric over tokens.

    By exact name: beside the "*" that Lightning defines, a second glob wins or loses at random.
    """
    run.define_metric("tokens")
    for name in (*METRIC_COLUMNS, *DIAGNOSTIC_COLUMNS):
        if name not in ("step", "tokens"):
            run.define_metric(name, step_metric="tokens", summary=SUMMARIES.get(name))
