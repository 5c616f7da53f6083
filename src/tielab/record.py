"""The record of a run: the versioned ``record.json`` in its folder.

A report reads records and nothing else. Writing is atomic: a reader sees the old record or the
new one, never half of one. Imports no torch.
"""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO

from tielab.errors import RequestError

SCHEMA_VERSION = 1
RECORD_NAME = "record.json"
METRICS_NAME = "metrics.csv"
NODE_RECORDS = "record.node*.json"
"""What the other nodes of a run keep; a report reads ``record.json`` alone, so the run counts once."""
RUN_CONFIG_NAME = "run.yaml"
TOKENIZER_NAME = "tokenizer.json"
LAST_CHECKPOINT = Path("checkpoints", "last.ckpt")
ERROR_FILES = "error.rank*.json"
"""What a process other than the first failed with."""
STATUSES = ("running", "finished", "failed", "interrupted")
DIVERGED = "DivergedError"
"""The error of a run that was trained to its end, where the loss was no number: an outcome, like a value."""


@dataclass
class Validation:
    """One pass over the whole validation split."""

    nats: float
    """Sum of the negative log-likelihoods of all scored tokens."""
    num_tokens: int
    """Scored tokens: all of the split but the first."""
    num_bytes: int
    """UTF-8 bytes of exactly the scored tokens."""
    perplexity: float
    """exp(nats / num_tokens)."""
    bits_per_byte: float
    """nats / (ln 2 * num_bytes)."""
    content_hash: str
    """Of the validation token ids and their bytes."""
    tokens_seen: int
    """Training tokens consumed before this pass."""
    num_words: int | None = None
    """Whitespace-separated words of exactly the scored tokens; null in a record that is older than this."""
    word_perplexity: float | None = None
    """exp(nats / num_words)."""


@dataclass
class Throughput:
    """Training tokens per second, all processes together; validation, checkpoints and logging left out."""

    median: float
    """Over intervals of training."""
    q1: float
    """First quartile."""
    q3: float
    """Third quartile."""
    per_device: float
    """Median divided by the number of processes."""
    num_intervals: int
    """Of ``trainer.log_every_n_steps`` steps each."""
    warmup_steps: int
    """Steps at the start that were left out."""


@dataclass
class Attempt:
    """An earlier try at a run that was taken up again."""

    started_at: str | None
    """As in ``Record``, like all of these."""
    status: str
    """How that attempt stood when the next one began."""
    error: dict[str, str] | None
    """Null unless it failed."""
    commit: str | None
    """Of the code it ran."""
    dirty: bool | None
    """Whether that code was changed."""
    code_hash: str | None
    """Of that code."""
    host: str | None
    """Where it ran."""


@dataclass
class Record:
    """What one run was asked for, what was observed, and what came out."""

    run_id: str
    """Name of the run in W&B and in its repetitions: arm, V, D, seed and six random digits."""
    status: str
    """running, finished, failed or interrupted."""
    config: dict[str, Any]
    """What run.yaml holds."""
    config_hash: str
    """Of the keys that decide the result: runs of equal hash are repetitions."""
    tied: bool
    """As configured."""
    seed: int
    """As configured."""
    schema_version: int = SCHEMA_VERSION
    """Of this file; a reader refuses another one."""
    started_at: str | None = None
    """UTC, ISO 8601; of the last attempt."""
    attempts: list[dict[str, Any]] = field(default_factory=list)
    """The earlier ones, each as ``Attempt``."""
    resumed_at_step: int | None = None
    """Optimizer steps the last attempt found done; null: it began anew."""
    process_id: int | None = None
    """Of the process that carries out the run."""
    host: str | None = None
    """Name of the machine."""
    commit: str | None = None
    """Of the code, if it lies in a git checkout."""
    dirty: bool | None = None
    """Whether it had uncommitted changes."""
    code_hash: str | None = None
    """Of the package's source files: tells two dirty checkouts apart."""
    versions: dict[str, str] = field(default_factory=dict)
    """Of Python and the packages that decide numbers."""
    device: str | None = None
    """Name of the device one process trained on."""
    num_threads: int | None = None
    """CPU threads of each process."""
    num_processes: int | None = None
    """Counted by an all-reduce of ones, not read from the config."""
    tie_observed: bool | None = None
    """Whether head and embedding were one Parameter at every check; of a model with ``untie_at`` at every one
    before the split, and two at every later one."""
    parameters: dict[str, int] = field(default_factory=dict)
    """token_embedding, position_embedding, blocks, final_norm, head, total (unique parameters), at the end of
    the training: a model that is split has two matrices."""
    flops_per_token: dict[str, int] = field(default_factory=dict)
    """forward, train."""
    matching: dict[str, Any] | None = None
    """Null where size and budget are as asked; else axis, adjusted, by, requested (dotted key -> value asked
    for), solved (-> value), parameters, target_parameters, parameter_mismatch (a fraction), flops_ratio (per
    training token, adjusted / reference); tokens and target_tokens where the budget was solved; measured."""
    data: dict[str, Any] = field(default_factory=dict)
    """corpus_hash, tokenizer_hash, vocab_size; of each split the counts and the content_hash. ``train`` is
    the part trained on, its ``unused_ids`` the number of ids that never occur there."""
    body_hash: str | None = None
    """Of the block, position and norm tensors before training: equal in two paired arms."""
    batch_hash: str | None = None
    """Of the window indices of the first training batches: equal in two paired arms."""
    init: dict[str, Any] | None = None
    """Null: drawn from the seed. Else files (name -> sha256), tied (whether they hold one matrix), tie (what
    became of that), num_positions."""
    initial_loss: float | None = None
    """Nats per token of the first training batch before any update; near ln V."""
    train_loss: float | None = None
    """Mean over the last tenth of the steps."""
    validation: dict[str, Any] | None = None
    """The pass after the last step, as ``Validation``."""
    best_validation: dict[str, Any] | None = None
    """The pass with the fewest bits per byte."""
    stride_validations: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of the finished model at each of ``data.check_strides``, as ``Validation``: the same tokens with more
    or less context."""
    throughput: dict[str, Any] | None = None
    """As ``Throughput``; null if the run was too short to measure."""
    peak_memory_bytes: int | None = None
    """On a GPU what the allocator held; on the CPU the process's peak resident memory."""
    tokens_seen: int | None = None
    """Training tokens consumed, all processes together."""
    epochs: float | None = None
    """``tokens_seen`` in passes over the training tokens used."""
    num_steps: int | None = None
    """Optimizer steps done."""
    seconds: float | None = None
    """Of the process's work up to the record, and those that led to the checkpoint it went on from."""
    seconds_by_phase: dict[str, float] = field(default_factory=dict)
    """data, train, validation; the last two with those that led to the checkpoint."""
    weights_hash: str | None = None
    """Of the final weights, bit for bit."""
    diagnostics: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By diagnostic its summary: plain numbers and lists of numbers."""
    error: dict[str, str] | None = None
    """type, message, traceback."""
    sweep: str | None = None
    """Name of the sweep's folder, for a job of a sweep."""
    rerun_of: str | None = None
    """The run_id this run repeats."""

    @property
    def finished(self) -> bool:
        return self.status == "finished"

    @property
    def diverged(self) -> bool:
        """Whether the training ran to its end, where the loss was no number."""
        return self.status == "failed" and (self.error or {}).get("type") == DIVERGED


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the path's place at the end: a crash or a full disk leaves the old one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_atomic(path: Path, text: str) -> None:
    """Write a text file so that a crash or a full disk leaves the old file or the new one."""
    with written_whole(path) as file:
        file.write(text.encode())


def write_record(folder: Path, record: Record, name: str = RECORD_NAME) -> None:
    """Write ``record.json`` into a run's folder."""
    assert record.status in STATUSES, record.status
    write_atomic(folder / name, json.dumps(asdict(record), indent=1) + "\n")


def read_record(folder: Path, name: str = RECORD_NAME) -> Record:
    """Read a run's record.

    Raises:
        RequestError: the file is missing, not readable, not JSON, of another schema version, or not a record.
    """
    path = folder / name
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RequestError(f"{folder}: no {RECORD_NAME} there; give the folder of a run") from None
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{path} is not JSON ({error}); the run must be repeated") from None
    found = data.get("schema_version") if isinstance(data, dict) else None
    if found != SCHEMA_VERSION:
        raise RequestError(
            f"{path} has schema_version {found}, this version reads {SCHEMA_VERSION}; "
            "report it with the version that wrote it"
        )
    known = {f.name for f in fields(Record)}
    try:
        return Record(**{key: value for key, value in data.items() if key in known})
    except TypeError as error:
        raise RequestError(f"{path} is not a record: {error}") from None
