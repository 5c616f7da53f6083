"""What data costs: preparing 10 MB of text cold and warm, fetching batches, and memory by the corpus' size.

``python -m benchmarks.data [--quick] [--out FOLDER]``
"""

import gc
import itertools
import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.data_phases import prepare_in_phases
from benchmarks.measure import command_line, interleave, quartiles, ratios, seconds, watched, write
from tielab.data.budget import check_fits, data_summary
from tielab.data.corpus import find_source
from tielab.data.datamodule import TextDataModule
from tielab.data.prepare import Prepared, TokenSplit, prepare
from tielab.data.shelf import config_with
from tielab.data.tokenizer import CharTokenizer
from tielab.fit import build_model
from tielab.training.optim import build_optimizer

Row = dict[str, Any]

SHAPES = {"small": (16, 128), "medium": (8, 256), "wide": (4, 256)}
"""Windows and positions of a training batch."""
VOCABULARIES = ("bpe4096", "bpe16384")
FRESH = """
import json, sys, time
from tielab.data.prepare import prepare
config = json.loads(sys.argv[1])
started = time.perf_counter()
prepare(config)
print(time.perf_counter() - started)
"""
"""Prepares data in a process that has prepared nothing before, as a run does."""


@dataclass(frozen=True)
class Amounts:
    """How much is measured."""

    corpus_bytes: int
    vocabularies: tuple[str, ...]
    cold_rounds: int
    warm_rounds: int
    fetch_rounds: int
    num_batches: int
    num_steps: int
    token_bytes: tuple[int, ...]


FULL = Amounts(10_000_000, VOCABULARIES, 2, 5, 5, 500, 8, (10_000_000, 100_000_000, 1_000_000_000))
QUICK = Amounts(200_000, ("bpe512", "bpe1024"), 1, 1, 2, 20, 1, (100_000, 1_000_000, 10_000_000))


def write_corpus(path: Path, num_bytes: int) -> int:
    """Articles of the encyclopedia, then code, until there are enough bytes; how many there are."""
    sources = (find_source(config_with(name, "byte", [])["data"]) for name in ("wiki", "code"))
    size = 0
    with path.open("wb") as file:
        for text in itertools.chain.from_iterable(source.documents() for source in sources):
            size += file.write(text.encode("utf-8") + b"\n\n")
            if size >= num_bytes:
                break
    return size


def prepare_once(data_config: dict[str, Any], folder: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=folder) as empty:
        return prepare_in_phases(data_config | {"cache_dir": empty})


def fresh_seconds(data_config: dict[str, Any]) -> float:
    """Of a warm ``prepare`` in a process of its own, behind its imports."""
    command = [sys.executable, "-c", FRESH, json.dumps(data_config)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def run_seconds(data_config: dict[str, Any]) -> float:
    """Of all that a run does with a warm cache: prepare to check and to use, then summarize."""

    def start() -> None:
        check_fits(prepare(data_config), data_config)
        prepared = prepare(data_config)
        check_fits(prepared, data_config)
        data_summary(prepared, prepared.train)

    return seconds(start)


def measure_prepare(configs: dict[str, Row], folder: Path, amounts: Amounts) -> list[Row]:
    """A row for each vocabulary."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in configs}
    for _ in range(amounts.cold_rounds):
        for name, config in configs.items():
            found[name].append(prepare_once(config, folder))
    rows = []
    for name, config in configs.items():
        prepared = prepare(config)
        arms = {
            "warm_seconds": partial(seconds, partial(prepare, config)),
            "warm_fresh_process_seconds": partial(fresh_seconds, config),
            "warm_run_seconds": partial(run_seconds, config),
        }
        warm = interleave(arms, amounts.warm_rounds)
        splits = (prepared.train, prepared.validation, prepared.test)
        cold = {f"{key}_seconds": quartiles([each[key] for each in found[name]]) for key in found[name][0]}
        rows.append(
            {
                "part": "prepare",
                "vocabulary": name,
                "corpus_bytes": sum(split.num_bytes for split in splits),
                "train_tokens": prepared.train.num_tokens,
                **cold,
                **{key: quartiles(values) for key, values in warm.items()},
            }
        )  # fmt: skip
    return rows


def shaped(data_config: dict[str, Any], shape: str) -> dict[str, Any]:
    batch_size, block_size = SHAPES[shape]
    sizes = {"block_size": block_size, "stride": block_size, "eval_stride": block_size}
    return data_config | sizes | {"batch_size": batch_size}


def fetching(loader: Iterable[Any], num_batches: int) -> Callable[[], float]:
    """Measures the tokens that a loader gives per second."""

    def measure() -> float:
        started, num_tokens = time.perf_counter(), 0
        for batch in itertools.islice(loader, num_batches):
            num_tokens += batch[0].numel()
        return num_tokens / (time.perf_counter() - started)

    return measure


def training(config: dict[str, Any], prepared: Prepared, num_steps: int) -> Callable[[], float]:
    """Measures the tokens that training uses per second at the small shape: model and optimizer alone."""
    torch.set_num_threads(config["trainer"]["num_threads"])
    data = shaped(config["data"], "small")
    model = build_model(config["model"], prepared.tokenizer)
    optimizer = build_optimizer(model, config["optimizer"])
    batches = list(TextDataModule(data, prepared, num_steps).train_dataloader())

    def measure() -> float:
        started, num_tokens = time.perf_counter(), 0
        for input_ids, targets in batches:
            torch.autograd.backward(model.loss(input_ids, targets))
            optimizer.step()
            optimizer.zero_grad()
            num_tokens += input_ids.numel()
        return num_tokens / (time.perf_counter() - started)

    measure()
    return measure


def measure_fetch(config: dict[str, Any], amounts: Amounts) -> list[Row]:
    """A row for each shape and loader."""
    prepared = prepare(config["data"])
    arms: dict[str, Callable[[], float]] = {"training": training(config, prepared, amounts.num_steps)}
    sizes: dict[str, Row] = {}
    for shape in SHAPES:
        data = TextDataModule(shaped(config["data"], shape), prepared, amounts.num_batches)
        for loader, batches in (("training", data.train_dataloader()), ("validation", data.val_dataloader())):
            name = f"{shape} {loader}"
            arms[name] = fetching(batches, amounts.num_batches)
            sizes[name] = {"part": "fetch", "shape": shape, "loader": loader}
            sizes[name] |= dict(zip(("batch_size", "block_size"), next(iter(batches))[0].shape, strict=True))
    found = interleave(arms, amounts.fetch_rounds)
    consumed = found.pop("training")
    return [
        {
            **sizes[name],
            "tokens_per_second": quartiles(rates),
            "microseconds_per_batch": quartiles(
                [1e6 * sizes[name]["batch_size"] * sizes[name]["block_size"] / rate for rate in rates]
            ),
            "trained_tokens_per_second": quartiles(consumed),
            "times_as_fast_as_training": ratios(rates, consumed),
        }
        for name, rates in found.items()
    ]


def anonymous_bytes() -> int:
    """Memory of this process that no file backs."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def synthetic(folder: Path, num_bytes: int) -> Prepared:
    """Token files of any size, all of them zero, so that they take no room on a disk."""
    tokenizer = CharTokenizer("", byte_fallback=True)
    path = folder / f"{num_bytes}.bin"
    with path.open("wb") as file:
        file.truncate(num_bytes)
    tokens = np.memmap(path, dtype="<u2", mode="r")
    split = TokenSplit(tokens, None, None, len(tokens), len(tokens), "")
    return Prepared("text", "", tokenizer, "", split, split, split)


def use(data: TextDataModule, num_batches: int) -> None:
    """Fetch batches all over the corpus from every loader."""
    for loader in (data.train_dataloader(), data.val_dataloader()):
        for _ in itertools.islice(loader, num_batches):
            pass


def measure_memory(data_config: dict[str, Any], folder: Path, amounts: Amounts) -> list[Row]:
    """A row for each size of the token files."""
    rows: list[Row] = []
    config = shaped(data_config, "small")
    # The first is measured twice: what it allocates once in a process is no part of the loader's memory.
    for num_bytes in (amounts.token_bytes[0], *amounts.token_bytes):
        prepared = synthetic(folder, num_bytes)
        gc.collect()
        before = anonymous_bytes()
        data = TextDataModule(config, prepared, amounts.num_batches)
        summary_seconds = seconds(partial(data_summary, prepared, prepared.train))
        use(data, amounts.num_batches)
        added = anonymous_bytes() - before
        tracemalloc.start()
        use(TextDataModule(config, prepared, amounts.num_batches), amounts.num_batches)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        rows.append(
            {
                "part": "memory",
                "token_file_bytes": num_bytes,
                "added_anonymous_bytes": added,
                "peak_allocated_bytes": peak,
                "count_tokens_seconds": summary_seconds,
            }
        )
    return rows[1:]


def show(rows: list[Row]) -> None:
    """Print a table for each part, medians only."""
    for part, group in itertools.groupby(rows, lambda row: row["part"]):
        shown = list(group)
        table = Table(title=part)
        columns = [key for key in shown[0] if key != "part"]
        for key in columns:
            table.add_column(key.replace("_", " "))
        for row in shown:
            values = (row[key]["median"] if isinstance(row[key], dict) else row[key] for key in columns)
            table.add_row(*(f"{value:,.4g}" if isinstance(value, float) else str(value) for value in values))
        Console().print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, quick="small amounts, for a first look")
    options = parser.parse_args(arguments)
    amounts = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory() as name, watched() as seen:
        folder = Path(name)
        path = folder / "corpus.txt"
        write_corpus(path, amounts.corpus_bytes)
        asked = [f"data.paths=[{path}]", f"data.cache_dir={folder / 'cache'}", "model=minigpt", "width=d128"]
        configs = {each: config_with("text", each, asked) for each in amounts.vocabularies}
        rows = measure_prepare({each: config["data"] for each, config in configs.items()}, folder, amounts)
        first = configs[amounts.vocabularies[0]]
        rows += measure_fetch(first, amounts)
        rows += measure_memory(first["data"], folder, amounts)
    show(rows)
    threads = first["trainer"]["num_threads"]
    conditions = {"threads": threads, "num_workers": first["data"]["num_workers"], **vars(amounts)}
    print(write("data", rows, seen, conditions, options.out))


if __name__ == "__main__":
    main()
