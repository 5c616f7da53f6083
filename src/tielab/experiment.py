"""One rank of one run: build from ``run.yaml``, fit, evaluate, write the record.

This module is imported once by the fork server, so that a job's process starts with torch and
lightning already loaded.
"""

import json
import logging
import os
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import torch

from tielab.allocator import keep_freed_memory
from tielab.errors import FAILED, FINISHED, INTERRUPTED, REFUSED, RequestError, reason_of
from tielab.explain import explain
from tielab.fit import Fit
from tielab.folder import read_run_config
from tielab.record import (
    ERROR_FILES,
    Record,
    read_record,
    write_atomic,
    write_record,
)
from tielab.tracking.wandb import finish_wandb, offline_hint, record_summary
from tielab.training.callbacks import RunInterruptedError

log = logging.getLogger("tielab")


def run_rank(folder: Path) -> int:
    """Run this process's share of the run in a folder and return its exit status.

    The first process writes the record: finished, failed with a traceback, or interrupted.
    """
    started = time.monotonic()
    config = read_run_config(folder)
    rank = global_rank(config["trainer"]["devices"])
    handlers = _log_to_file(folder, rank)
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    record = read_record(folder)
    fit: Fit | None = None
    try:
        fit = Fit(config, folder, record)
        fit.run()
        record.status, status = "finished", FINISHED
    except BaseException as error:
        record.status, status = _ending(error)
        record.error = _describe(error)
        log.debug(record.status, exc_info=status == FAILED)
    if not record.finished:
        record.validation = None  # was of some earlier step
        record.stride_validations = {}
    record.seconds = time.monotonic() - started + (fit.earlier_seconds if fit is not None else 0.0)
    if rank == 0:
        try:
            write_record(folder, record)
        except OSError as error:
            status = FAILED
            log.error("the record was not written: %s", explain(error) or error)
        _finish_loggers(fit, record, status)
    elif status in (FAILED, REFUSED):
        write_atomic(folder / ERROR_FILES.replace("*", str(rank)), json.dumps(record.error))
    _leave_group()
    for number, handler in signals.items():  # for the next inline run of this process
        signal.signal(number, handler)
    for named, output in handlers:
        named.removeHandler(output)
    return status


def global_rank(num_per_node: int) -> int:
    """This process's number among all of the run, from the environment its launcher made."""
    if "RANK" in os.environ:
        return int(os.environ["RANK"])
    return int(os.environ.get("NODE_RANK", "0")) * num_per_node + int(os.environ.get("LOCAL_RANK", "0"))


def _log_to_file(folder: Path, rank: int) -> list[tuple[logging.Logger, logging.Handler]]:
    """Send all that is logged or warned to the run's log, what we log to standard error as well.

    Returns the handlers added, each with its logger.
    """
    name = "run.log" if rank == 0 else f"run.rank{rank}.log"
    file = logging.FileHandler(folder / name, encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(file)
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # a log on a full disk must not bury the error
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    # Warns that gathering a matrix that is split twice takes two steps.
    logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
    for lightning in ("lightning", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(lightning).handlers.clear()
        logging.getLogger(lightning).propagate = True
    screen = logging.StreamHandler(sys.stderr)
    screen.setFormatter(logging.Formatter("%(message)s"))
    screen.setLevel(logging.INFO if rank == 0 else logging.ERROR)
    log.addHandler(screen)
    log.setLevel(logging.DEBUG)
    return [(root, file), (log, screen)]


def _ending(error: BaseException) -> tuple[str, int]:
    """Status and exit status of a run that an exception ended."""
    # Lightning turns a KeyboardInterrupt into a SystemExit; any other one is a callback's own.
    stopped = isinstance(error, RunInterruptedError | KeyboardInterrupt) or (
        isinstance(error, SystemExit) and isinstance(error.__context__, KeyboardInterrupt)
    )
    if stopped:
        return "interrupted", INTERRUPTED
    return "failed", REFUSED if explain(error) is not None else FAILED


def _describe(error: BaseException) -> dict[str, str]:
    message = explain(error) or str(error) or type(error).__name__
    text = "".join(traceback.format_exception(error))
    kind = RequestError if explain(error) is not None else type(error)
    return {"type": kind.__name__, "message": message, "traceback": text}


def _finish_loggers(fit: "Fit | None", record: Record, status: int) -> None:
    for local in fit.local_loggers if fit is not None else ():
        try:
            local.finish(status)
            log.info(local.hint())
        except Exception as error:  # a viewer's, which must not cost a finished run its status
            log.warning("%s not closed: %s", type(local).__name__, reason_of(error))
    logger = fit.wandb_logger if fit is not None else None
    finish_wandb(logger, status, record_summary(record))
    if logger is not None and os.environ.get("WANDB_MODE") == "offline":
        log.info(offline_hint(str(logger.save_dir), record.run_id))


def _leave_group() -> None:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def run_process(folder: Path) -> int:
    """``run_rank`` in a process that is there for nothing else, set up for it."""
    keep_freed_memory()
    # A step that computes with numbers below 1.2e-38 takes up to three times as long. Rows of an untied
    # embedding have them, once their ids have not been seen for some 700 steps; those of a tied one do not.
    torch.set_flush_denormal(True)
    return run_rank(folder)


if __name__ == "__main__":
    from tielab.lifetime import die_with_parent, leave

    die_with_parent()
    leave(run_process(Path(sys.argv[1])))
