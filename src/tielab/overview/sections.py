"""The sections of a run's page that its record and its curves fill. Imports no torch."""

import math
from pathlib import Path
from typing import Any, TypeGuard

from tielab.code_version import code_hash
from tielab.errors import printable
from tielab.overview.curves import read_curve, sparkline
from tielab.overview.text import duration
from tielab.record import Record
from tielab.report.arms import arm_name
from tielab.report.pairing import lookup
from tielab.report.settings import seed_label, seeds_of, study_phase
from tielab.report.table import word_perplexity
from tielab.report.wording import bits_text, count_text, mebibytes_text, perplexity_text

LEDGER = {
    "token_embedding": "token embedding", "position_embedding": "position embedding", "blocks": "blocks",
    "final_norm": "final norm", "head": "LM head",
}  # fmt: skip

Line = tuple[str, str]
"""A label and what it says."""


def identity(record: Record) -> list[Line]:
    seen = {None: "not yet", True: "one matrix at every check", False: "two matrices at every check"}
    same = record.tie_observed == record.tied
    observed = seen.get(record.tie_observed, str(record.tie_observed))
    if record.tie_observed is not None and not same:
        observed += ": NOT as configured"
    model = "{num_layers} layers, width {embed_dim}, {num_heads} heads, hidden {hidden_dim}, T {block_size}"
    values = _Known(lookup(record, "config.model") or {})
    lines = [
        ("arm", arm_name(record.config)),
        ("tie", f"configured {'tied' if record.tied else 'untied'}; observed {observed}"),
        ("seed", seed_label(seeds_of(record))),
        ("model", model.format_map(values)),
        ("learning rate", f"{lookup(record, 'config.optimizer.learning_rate')} at its peak"),
        ("batch", f"{lookup(record, 'config.data.batch_size')} windows a step"),
        ("run id", record.run_id),
        ("config hash", record.config_hash),
        ("sweep", record.sweep),
        ("repeats", record.rerun_of),
        ("study", study_phase(record)),
    ]
    matching = record.matching or {}
    if matching.get("solved"):
        solved = ", ".join(f"{key}={value}" for key, value in matching["solved"].items())
        lines.append(("matching", f"{matching.get('axis')}: solved {solved}"))
    return known(lines)


class _Known(dict[str, Any]):
    """Values by name; one that a stranger's record lacks is a question mark."""

    def __missing__(self, key: str) -> str:
        return "?"


def known(lines: list[tuple[str, Any]]) -> list[Line]:
    return [(label, str(value)) for label, value in lines if value not in (None, "")]


def parameters(record: Record) -> list[Line]:
    total = record.parameters.get("total")
    if not _is_number(total) or not total:
        return []
    lines = [("total", count_text(total))]
    for name, label in LEDGER.items():
        count = record.parameters.get(name)
        if name == "head" and count == 0:
            lines.append((label, "shares the token embedding's matrix"))
        elif _is_number(count):
            lines.append((label, f"{count_text(count)} ({100 * count / total:.1f} %)"))
    return lines


def validation(record: Record) -> list[Line]:
    lines: list[Line] = []
    if record.validation:
        lines = _pass(record, "validation") + known(
            [
                ("word perplexity", _shown(word_perplexity(record), perplexity_text)),
                ("scored tokens", _shown(lookup(record, "validation.num_tokens"), count_text)),
            ]
        )
    best = _pass(record, "best_validation")
    if best and best != lines[:2] and _is_number(lookup(record, "best_validation.bits_per_byte")):
        at = _shown(lookup(record, "best_validation.tokens_seen"), count_text)
        lines.append(("best", f"{best[0][1]} bits/byte, perplexity {best[1][1]}, after {at} tokens"))
    for stride, found in record.stride_validations.items():
        lines.append((f"stride {stride}", f"{_shown(found.get('bits_per_byte'), bits_text)} bits/byte"))
    losses = [("train loss", record.train_loss, ""), ("initial loss", record.initial_loss, _ln_v(record))]
    lines += [(label, f"{loss:.4f} nats/token{more}") for label, loss, more in losses if _is_number(loss)]
    return lines


def _pass(record: Record, name: str) -> list[Line]:
    bits, ppl = lookup(record, f"{name}.bits_per_byte"), lookup(record, f"{name}.perplexity")
    if bits is None or ppl is None:
        return []
    return [("bits per byte", _shown(bits, bits_text)), ("perplexity", _shown(ppl, perplexity_text))]


def _ln_v(record: Record) -> str:
    size = record.data.get("vocab_size")
    return f"; ln V = {math.log(size):.4f}" if _is_number(size) and size > 0 else ""


def curves(folder: Path, width: int) -> list[Line]:
    lines = []
    for label, column in (("train loss", "train/loss"), ("bits per byte", "val/bits_per_byte")):
        curve = read_curve(folder, column)
        if curve:
            ends = f"{curve[0][1]:.4f} to {curve[-1][1]:.4f}"
            lines.append((label, f"{sparkline(curve, width)}  {ends}"))
    return lines


def cost(record: Record) -> list[Line]:
    tokens = _shown(record.tokens_seen, count_text)
    epochs = f", {record.epochs:.3g} epochs" if _is_number(record.epochs) else ""
    steps = f", {_shown(record.num_steps, count_text)} steps" if record.num_steps else ""
    phases = ", ".join(
        f"{name} {duration(seconds)}"
        for name, seconds in record.seconds_by_phase.items()
        if _is_number(seconds)
    )
    speed, q1, q3 = (lookup(record, f"throughput.{name}") for name in ("median", "q1", "q3"))
    spread = f" (quartiles {_shown(q1, count_text)} to {_shown(q3, count_text)})" if _is_number(q1) else ""
    memory = _shown(record.peak_memory_bytes, mebibytes_text)
    flops = _shown(lookup(record, "flops_per_token.train"), count_text)
    return known(
        [
            ("training tokens", tokens and f"{tokens}{epochs}{steps}"),
            ("time", f"{duration(record.seconds)} ({phases})" if _is_number(record.seconds) else ""),
            ("tokens/s", f"{_shown(speed, count_text)}{spread}" if _is_number(speed) else ""),
            ("peak memory", memory and f"{memory} MiB"),
            ("training FLOPs", flops and f"{flops} per token"),
        ]
    )


def data(record: Record) -> list[Line]:
    data = record.data
    kind = lookup(record, "config.data.tokenizer.kind")
    size = _shown(data.get("vocab_size"), count_text)
    ratio = data.get("bytes_per_token")
    lines = [
        (
            "corpus",
            _with_hash(data.get("corpus") or lookup(record, "config.data.corpus"), data, "corpus_hash"),
        ),
        ("tokenizer", _with_hash(f"{kind}, V {size or '?'}", data, "tokenizer_hash")),
        ("bytes per token", f"{ratio:.3f}" if _is_number(ratio) else ""),
    ]
    for name in ("train", "validation", "test"):
        split = data.get(name)
        if isinstance(split, dict):
            documents = _shown(split.get("num_documents"), count_text)
            lines.append(
                (name, f"{_shown(split.get('num_tokens'), count_text)} tokens, {documents} documents")
            )
    unused = lookup(record, "data.train.unused_ids")
    lines.append(("unused ids", f"{count_text(unused)} never occur in training" if unused else ""))
    return known(lines)


def _with_hash(what: Any, data: dict[str, Any], key: str) -> str:
    return f"{what} ({str(data[key])[:16]})" if data.get(key) else str(what)


def circumstances(record: Record) -> list[Line]:
    commit = record.commit and f"{record.commit[:12]}{' with uncommitted changes' if record.dirty else ''}"
    now = code_hash()
    same = "the same now" if record.code_hash == now else f"now {now}"
    threads = _count_of(record.num_threads, "thread", "threads") + _count_of(
        record.num_processes, "process", "processes"
    )
    return known(
        [
            ("device", record.device and f"{record.device}{threads}"),
            ("host", record.host),
            ("commit", commit),
            ("code", record.code_hash and f"{record.code_hash} ({same})"),
            ("versions", ", ".join(f"{name} {version}" for name, version in record.versions.items())),
        ]
    )


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _count_of(count: Any, one: str, several: str) -> str:
    return f", {count} {one if count == 1 else several}" if count else ""


def _shown(value: Any, text: Any) -> str:
    """The value as a number reads, whatever else a stranger's record holds as it stands there."""
    if value is None:
        return ""
    return str(text(value)) if _is_number(value) else printable(str(value))
