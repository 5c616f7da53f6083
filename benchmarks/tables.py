"""Writes the tables of the README from the results: ``python -m benchmarks.tables``.

A table stands between ``<!-- NAME -->`` and ``<!-- end NAME -->``. Nothing but the results decides it.
"""

import argparse
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import RESULTS, describe_quiet

README = Path(__file__).with_name("README.md")
Row = dict[str, Any]
Column = tuple[str, Callable[[Row], str]]


def spread(row: Row, name: str, digits: int = 2) -> str:
    """A figure's median with its quartiles, or only the figure where it was not repeated."""
    value = row.get(name)
    if value is None:
        return ""
    if not isinstance(value, dict):
        return f"{value:,.{digits}f}"
    low, high = f"{value['low']:,.{digits}f}", f"{value['high']:,.{digits}f}"
    return f"{value['median']:,.{digits}f} ({low} to {high})"


def text(name: str) -> Callable[[Row], str]:
    return lambda row: str(row.get(name, ""))


def number(name: str, digits: int = 2) -> Callable[[Row], str]:
    return lambda row: spread(row, name, digits)


def mebibytes(name: str) -> Callable[[Row], str]:
    return lambda row: "" if row.get(name) is None else f"{_median(row[name]) / 2**20:,.0f}"


def percent(name: str) -> Callable[[Row], str]:
    return lambda row: "" if row.get(name) is None else f"{_median(row[name]):.1%}"


def _median(value: Any) -> float:
    return float(value["median"] if isinstance(value, dict) else value)


def scaled(name: str, factor: float, digits: int = 1) -> Callable[[Row], str]:
    """A figure and its quartiles in another unit."""

    def cell(row: Row) -> str:
        value = row.get(name)
        if isinstance(value, dict):
            value = {key: factor * number for key, number in value.items()}
        return spread(
            {name: value if value is None or isinstance(value, dict) else factor * value}, name, digits
        )

    return cell


def own_quartiles(prefix: str = "", digits: int = 2) -> Callable[[Row], str]:
    """A figure whose median and quartiles are columns of the row."""

    def cell(row: Row) -> str:
        keys = {key: row.get(f"{prefix}{key}") for key in ("median", "low", "high")}
        whole = keys["low"] is not None and row.get("n") != 1
        return spread({"it": keys if whole else keys["median"]}, "it", digits)

    return cell


def modes(row: Row) -> str:
    """What each mode gave in its trial."""
    found = row["trial_tokens_per_second"].items()
    return ", ".join(f"{mode} {rate:,.0f}" for mode, rate in found)


def sizes(row: Row) -> str:
    return f"{row['positions']} x {row['embed_dim']}, V {row['vocab_size']}"


def imported(row: Row) -> str:
    return ", ".join(f"{name} {spent:.2f}" for name, spent in row["most_imported_seconds"].items())


@dataclass(frozen=True)
class Shown:
    """A table of a result: which of its rows, and the title and cell of every column."""

    columns: Sequence[Column]
    chosen: Callable[[Row], bool] = lambda row: True


SWEEPS = [
    Shown(
        [
            ("", lambda row: row["what"].replace("_", " ")),
            ("median (quartiles)", own_quartiles()),
            ("n", text("n")),
        ]
    )
]

TABLES: dict[str, Sequence[Shown]] = {
    "peers": [
        Shown(
            [
                ("shape", text("shape")),
                ("tool", text("tool")),
                ("mode", text("mode")),
                ("tokens/s", number("tokens_per_second", 0)),
                ("tielab is … times as fast", number("tielab_over_it")),
                ("tokens/s of each mode in its trial", modes),
            ]
        )
    ],
    "quality": [
        Shown(
            [
                ("", text("arm")),
                ("wall time, s", number("wall_seconds", 1)),
                ("training, s", number("loop_seconds", 1)),
                ("nats per character", number("loss_mean", 4)),
                ("sd over seeds", number("loss_sd", 4)),
                ("worst", number("loss_worst", 4)),
                ("wall time to nanoGPT's", number("wall_seconds_ratio")),
                ("training to nanoGPT's", number("loop_seconds_ratio")),
                (
                    "seeds that reach its loss",
                    lambda row: f"{row['reached']} of {row['seeds']}" if "seeds" in row else "",
                ),
            ]
        )
    ],
    "overhead": [
        Shown(
            [
                ("shape", text("shape")),
                ("plain loop, ms", scaled("plain_seconds_per_step", 1e3)),
                ("harness, ms", scaled("harness_seconds_per_step", 1e3)),
                ("harness to plain", number("harness_over_plain", 3)),
                ("added, µs", number("added_microseconds_per_step", 0)),
            ],
            lambda row: "part" not in row,
        ),
        Shown(
            [
                ("shape", text("shape")),
                ("what is added", text("part")),
                ("µs per step", number("microseconds_per_step", 0)),
            ],
            lambda row: "part" in row,
        ),
    ],
    "roofline": [
        Shown(
            [
                ("shape", text("shape")),
                ("precision", text("precision")),
                ("step, GFLOP/s", scaled("step_flops_per_second", 1e-9, 0)),
                ("best product, GFLOP/s", scaled("product_flops_per_second", 1e-9, 0)),
                ("share of the limit", scaled("share_of_limit", 100, 0)),
                ("best product", text("best_product")),
                ("tokens/s", number("tokens_per_second", 0)),
            ]
        )
    ],
    "head": [
        Shown(
            [
                ("positions x width", sizes),
                ("precision", text("precision")),
                ("head", text("head")),
                ("ms", scaled("seconds", 1e3)),
                ("time to the logits path's", number("seconds_to_logits")),
                ("peak MiB", mebibytes("peak_memory_bytes")),
                ("memory to the logits path's", number("peak_memory_to_logits")),
                ("largest gradient difference", lambda row: f"{row['largest_gradient_difference']:.1e}"),
            ]
        )
    ],
    "data": [
        Shown(
            [
                ("10 MB of text", text("vocabulary")),
                ("cold, s", number("cold_seconds")),
                ("of it training the tokenizer", number("train_seconds")),
                ("encoding", number("encode_seconds")),
                ("warm, s", number("warm_seconds", 3)),
                ("warm in a new process, s", number("warm_fresh_process_seconds", 3)),
                ("all a run does, warm, s", number("warm_run_seconds", 3)),
            ],
            lambda row: row["part"] == "prepare",
        ),
        Shown(
            [
                ("shape", text("shape")),
                ("loader", text("loader")),
                ("a batch, µs", number("microseconds_per_batch", 0)),
                ("tokens/s", number("tokens_per_second", 0)),
                ("times what training uses", number("times_as_fast_as_training", 0)),
            ],
            lambda row: row["part"] == "fetch",
        ),
        Shown(
            [
                ("token file, MiB", mebibytes("token_file_bytes")),
                ("memory added, KiB", scaled("added_anonymous_bytes", 2**-10, 0)),
                ("most allocated at once, KiB", scaled("peak_allocated_bytes", 2**-10, 0)),
            ],
            lambda row: row["part"] == "memory",
        ),
    ],
    "sweeps": SWEEPS,
    "sweeps_minute": SWEEPS,
    "start": [
        Shown(
            [
                ("command", lambda row: f"`{row['command']}`"),
                ("seconds", own_quartiles("seconds_")),
                ("of it imports", percent("import_share")),
                ("most of them, s", imported),
            ]
        )
    ],
    "growth": [
        Shown(
            [
                ("V", text("vocab_size")),
                ("d", text("embed_dim")),
                ("T", text("block_size")),
                ("", text("arm")),
                ("tokens/s", number("tokens_per_second", 0)),
                ("step, to tied", number("seconds_to_tied")),
                ("update, ms", scaled("seconds_per_update", 1e3)),
                ("the model misses time by", lambda row: f"{row['seconds_residual']:+.0%}"),
                ("peak MiB", mebibytes("peak_memory_bytes")),
                ("the model misses memory by", lambda row: f"{row['memory_residual']:+.0%}"),
            ]
        )
    ],
}
"""What is shown of each benchmark."""


def tables(result: dict[str, Any], shown: Sequence[Shown]) -> str:
    """A result as Markdown tables, with the line that says what it holds for."""
    parts = []
    for one in shown:
        rows = [row for row in result["rows"] if one.chosen(row)]
        lines = [
            "| " + " | ".join(title for title, _ in one.columns) + " |",
            "|" + "---|" * len(one.columns),
            *("| " + " | ".join(cell(row) for _, cell in one.columns) + " |" for row in rows),
        ]
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, conditions(result)])


def conditions(result: dict[str, Any]) -> str:
    """Machine, versions, date, commit and command of a result, and whether the machine was quiet."""
    machine, versions = result["machine"], {**result["versions"], **result["conditions"].get("versions", {})}
    quiet = describe_quiet(result) + ("" if result["quiet"] else ": not quiet, trust the ratios only")
    policy = f", OMP_WAIT_POLICY={result['omp_wait_policy']}" if result.get("omp_wait_policy") else ""
    return (
        f"`{result['command']}`{policy}, {result['date']}, commit {result['commit']}, "
        f"{result['seconds']:.0f} s, {machine['cores']} cores of {machine['processor']}, "
        f"{machine['memory_gib']} GiB; {', '.join(f'{name} {v}' for name, v in versions.items())}; {quiet}."
    )


def renew(page: str, name: str, content: str) -> str:
    """The page with what stands between a benchmark's markers replaced; refuses a page without them."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"no <!-- {name} --> … <!-- end {name} --> in the page")
    return pattern.sub(lambda found: f"{found[1]}{content}\n{found[2]}", page)


def renewed(page: str, results: Path = RESULTS) -> str:
    """The page with a table for every result there is."""
    for name, shown in TABLES.items():
        path = results / f"{name}.json"
        if path.is_file():
            page = renew(page, name, tables(json.loads(path.read_text(encoding="utf-8")), shown))
    return page


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    README.write_text(renewed(README.read_text(encoding="utf-8")), encoding="utf-8")
