"""The benchmark of data measures preparing, fetching and memory, and its phases add up."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from benchmarks.data_phases import PHASES

from benchmarks import data


def test_it_measures_every_part(tmp_path: Path) -> None:
    data.main(["--quick", "--out", str(tmp_path)])
    rows = json.loads((tmp_path / "data.json").read_text())["rows"]
    prepared, fetched, memory = (
        [row for row in rows if row["part"] == part] for part in ("prepare", "fetch", "memory")
    )
    assert [row["vocabulary"] for row in prepared] == list(data.QUICK.vocabularies)
    for row in prepared:
        phases = [row[f"{name}_seconds"]["median"] for name in PHASES]
        assert min(phases) > 0
        assert sum(phases) == pytest.approx(row["cold_seconds"]["median"], rel=0.5)
        assert sum(phases) <= row["cold_seconds"]["median"]
    assert {(row["shape"], row["loader"]) for row in fetched} == {
        (shape, loader) for shape in data.SHAPES for loader in ("training", "validation")
    }
    sizes = [(row["batch_size"], row["block_size"]) for row in fetched if row["loader"] == "training"]
    assert sizes == list(data.SHAPES.values())
    assert [row["token_file_bytes"] for row in memory] == list(data.QUICK.token_bytes)
    for smaller, larger in pairwise(memory):
        assert larger["peak_allocated_bytes"] < smaller["peak_allocated_bytes"] + 10_000
