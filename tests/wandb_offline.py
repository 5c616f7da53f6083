"""Reads the offline transaction log of W&B (``offline-run-*/run-*.wandb``), without a server.

The file is a 7-byte header (``:W&B``, the magic 0xBEE1 in little-endian, version 0), then blocks of
32 KiB in LevelDB's log format. A block holds chunks of crc32 (4 bytes) over type and body, length of
the body (2), type (1), body; what is left of a block and too small for a chunk header is padding. A
record is one chunk of type FULL, or a FIRST, any number of MIDDLE and a LAST. The joined bodies are
a ``wandb_internal_pb2.Record``. A killed run ends in the middle of a chunk, and has no exit record.
"""

import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record

FILE_HEADER = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
CHUNK_HEADER = struct.Struct("<IHB")
BLOCK_BYTES = 32 * 1024
FULL, FIRST, _MIDDLE, LAST = 1, 2, 3, 4


@dataclass(frozen=True)
class MetricDefinition:
    step_metric: str
    summary: frozenset[str]


@dataclass
class OfflineRun:
    run_id: str = ""
    name: str = ""
    project: str = ""
    group: str = ""
    job_type: str = ""
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    """Without the ``_wandb`` key that wandb adds."""
    summary: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, MetricDefinition] = field(default_factory=dict)
    """By exact name, or by glob."""
    artifacts: list[str] = field(default_factory=list)
    exit_code: int | None = None
    """None: killed, or still running."""


def run_files(save_dir: Path) -> list[Path]:
    """Transaction logs of all offline runs under ``<save_dir>/wandb``, oldest first."""
    return sorted(save_dir.glob("wandb/offline-run-*/run-*.wandb"))


def read_offline_run(path: Path) -> OfflineRun:
    """What one transaction log says about its run."""
    run = OfflineRun()
    for record in records(path.read_bytes()):
        _apply(record, run)
    run.config.pop("_wandb", None)
    return run


def records(data: bytes) -> Iterator[Record]:
    """Every whole record of a transaction log; a torn tail is left out.

    Raises:
        ValueError: the header or a checksum is wrong.
    """
    if not data.startswith(FILE_HEADER):
        raise ValueError(f"not a W&B transaction log: starts with {data[: len(FILE_HEADER)]!r}")
    body = b""
    for kind, chunk in _chunks(data):
        body = chunk if kind in (FULL, FIRST) else body + chunk
        if kind in (FULL, LAST):
            yield Record.FromString(body)


def _chunks(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = len(FILE_HEADER)
    while position + CHUNK_HEADER.size <= len(data):
        left_in_block = BLOCK_BYTES - position % BLOCK_BYTES
        crc, length, kind = CHUNK_HEADER.unpack_from(data, position)
        if left_in_block < CHUNK_HEADER.size or (length, kind) == (0, 0):
            position += left_in_block
            continue
        start = position + CHUNK_HEADER.size
        body = data[start : start + length]
        if len(body) < length:
            return
        if zlib.crc32(bytes([kind]) + body) != crc:
            raise ValueError(f"wrong checksum at byte {position}")
        yield kind, body
        position = start + length


def _apply(record: Record, run: OfflineRun) -> None:
    kind = record.WhichOneof("record_type")
    if kind == "run":
        run.run_id, run.name, run.project = record.run.run_id, record.run.display_name, record.run.project
        run.group, run.job_type = record.run.run_group, record.run.job_type
        run.tags = list(record.run.tags)
        _merge(run.config, record.run.config.update)
    elif kind == "config":
        _merge(run.config, record.config.update)
    elif kind == "summary":
        _merge(run.summary, record.summary.update)
    elif kind == "history":
        row: dict[str, Any] = {}
        _merge(row, record.history.item)
        run.history.append(row)
    elif kind == "metric":
        metric = record.metric
        kept = frozenset(f.name for f, _ in metric.summary.ListFields())
        run.metrics[metric.name or metric.glob_name] = MetricDefinition(metric.step_metric, kept)
    elif kind == "artifact":
        run.artifacts.append(record.artifact.name)
    elif kind == "exit":
        run.exit_code = record.exit.exit_code


def _merge(tree: dict[str, Any], items: Iterable[Any]) -> None:
    """Set the items' values; an item is addressed by one key or by a path of keys."""
    for item in items:
        *parents, leaf = list(item.nested_key) or [item.key]
        node = tree
        for key in parents:
            if not isinstance(node.get(key), dict):
                node[key] = {}
            node = node[key]
        node[leaf] = json.loads(item.value_json)
