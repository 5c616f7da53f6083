"""metrics.csv: whole lines, exact numbers, no rows twice after a resume, no metric lost."""

import csv
import math
import pickle
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pandas as pd
import pytest
import torch
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.callbacks import ModelCheckpoint
from one_parameter import MetricOfAUser, fit

from tielab.errors import RequestError
from tielab.tracking.metrics_csv import METRIC_COLUMNS, MetricsCsv


def cells(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_columns_are_the_documented_ones_in_order(tmp_path: Path) -> None:
    MetricsCsv(tmp_path)
    assert (tmp_path / "metrics.csv").read_text() == (
        "step,tokens,seconds,train/loss,learning_rate,gradient_norm,tokens_per_second,"
        "val/loss,val/perplexity,val/word_perplexity,val/bits_per_byte\n"
    )
    assert all(METRIC_COLUMNS.values())


def test_a_row_is_in_the_file_when_the_call_returns(tmp_path: Path) -> None:
    logger = MetricsCsv(tmp_path)
    for step in range(3):
        logger.log_metrics({"train/loss": 1 / (step + 1), "tokens": 10 * step}, step)
        text = (tmp_path / "metrics.csv").read_text()
        assert text.count("\n") == step + 2
        assert text.endswith("\n")


@pytest.mark.parametrize("value", [1 / 3, 1e-300, 2.0**53 + 2, -0.0, math.inf, -math.inf, 123_456_789_012])
def test_numbers_read_back_as_they_were(tmp_path: Path, value: float) -> None:
    MetricsCsv(tmp_path).log_metrics({"train/loss": value}, 1)
    text = cells(tmp_path)[0]["train/loss"]
    assert float(text) == value
    assert math.copysign(1, float(text)) == math.copysign(1, value)
    assert pd.read_csv(tmp_path / "metrics.csv", float_precision="round_trip")["train/loss"][0] == value


def test_what_is_not_a_number_stays_visible(tmp_path: Path) -> None:
    MetricsCsv(tmp_path).log_metrics({"train/loss": math.nan, "val/loss": math.inf}, 1)
    row = cells(tmp_path)[0]
    assert (row["train/loss"], row["val/loss"], row["tokens"]) == ("nan", "inf", "")


def test_tensors_and_integers_are_numbers(tmp_path: Path) -> None:
    logger = MetricsCsv(tmp_path)
    logger.log_metrics({"tokens": 2**24 + 1, "train/loss": torch.tensor(0.5)}, 1)  # type: ignore[dict-item]
    assert (cells(tmp_path)[0]["tokens"], cells(tmp_path)[0]["train/loss"]) == ("16777217", "0.5")


def test_a_metric_of_a_user_gets_its_own_column(tmp_path: Path) -> None:
    logger = MetricsCsv(tmp_path)
    logger.log_metrics({"train/loss": 1.0}, 0)
    logger.log_metrics({"my/metric": 7.0, 'odd, "name"': 8.0}, 1)
    logger.log_metrics({"train/loss": 2.0}, 2)
    table = pd.read_csv(tmp_path / "metrics.csv")
    assert list(table.columns) == [*METRIC_COLUMNS, "my/metric", 'odd, "name"']
    assert table["my/metric"].dropna().to_list() == [7.0]
    assert table["train/loss"].dropna().to_list() == [1.0, 2.0]
    assert table["step"].to_list() == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]


def test_an_existing_file_is_an_error_unless_resumed(tmp_path: Path) -> None:
    MetricsCsv(tmp_path).log_metrics({"train/loss": 1.0}, 0)
    before = (tmp_path / "metrics.csv").read_bytes()
    with pytest.raises(RequestError, match=r"metrics\.csv exists already"):
        MetricsCsv(tmp_path)
    assert (tmp_path / "metrics.csv").read_bytes() == before


def test_resuming_drops_the_rows_that_will_be_repeated(tmp_path: Path) -> None:
    first = MetricsCsv(tmp_path)
    for step in range(6):
        first.log_metrics({"train/loss": float(step), "my/metric": float(step)}, step)
    second = MetricsCsv(tmp_path, resume_step=3)
    assert [row["step"] for row in cells(tmp_path)] == ["0", "1", "2", "3"]
    second.log_metrics({"train/loss": 40.0, "my/metric": 41.0, "new": 42.0}, 4)
    table = pd.read_csv(tmp_path / "metrics.csv")
    assert table["my/metric"].to_list() == [0, 1, 2, 3, 41]
    assert table["new"].dropna().to_list() == [42]


@pytest.mark.parametrize("torn", ["4,", "4,1.0,2.0,3.0,0.1,0.2,100.0,,,1.2"])
def test_resuming_drops_a_torn_last_line(tmp_path: Path, torn: str) -> None:
    MetricsCsv(tmp_path).log_metrics({"train/loss": 1.0}, 0)
    with (tmp_path / "metrics.csv").open("a") as file:
        file.write(torn)
    MetricsCsv(tmp_path, resume_step=9).log_metrics({"train/loss": 2.0}, 1)
    assert [row["train/loss"] for row in cells(tmp_path)] == ["1.0", "2.0"]


@pytest.mark.parametrize("found", [None, "", "step,tok"])
def test_resuming_without_a_whole_header_starts_a_file(tmp_path: Path, found: str | None) -> None:
    if found is not None:
        (tmp_path / "metrics.csv").write_text(found)
    MetricsCsv(tmp_path, resume_step=5).log_metrics({"tokens": 1}, 6)
    assert cells(tmp_path)[0]["tokens"] == "1"


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "NODE_RANK"])
def test_other_ranks_touch_nothing_even_before_lightning_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    logger = MetricsCsv(tmp_path / "run")
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    logger.log_metrics({"train/loss": 1.0}, 0)
    logger.finalize("success")
    assert not (tmp_path / "run").exists()


def test_a_row_costs_less_than_a_tenth_of_a_millisecond(tmp_path: Path) -> None:
    logger = MetricsCsv(tmp_path)
    row = {"train/loss": 1 / 3, "tokens": 12345.0, "learning_rate": 1e-3, "gradient_norm": 1 / 7, "epoch": 0}
    seconds = []
    for step in range(1000):
        start = time.perf_counter()
        logger.log_metrics(row, step)
        seconds.append(time.perf_counter() - start)
    assert sorted(seconds)[500] < 1e-4


def test_lightning_fills_it_and_keeps_its_own_files_beside_it(tmp_path: Path) -> None:
    trainer = fit([MetricsCsv(tmp_path)], 4, callbacks=[MetricOfAUser()])
    assert (trainer.log_dir, trainer.loggers[0].name, trainer.loggers[0].version) == (str(tmp_path), "", "")
    table = pd.read_csv(tmp_path / "metrics.csv")
    assert list(table.columns) == [*METRIC_COLUMNS, "my/metric"]
    assert table["tokens"].dropna().to_list() == [8, 16, 24, 32]
    assert table["val/loss"].count() == 2
    assert table["my/metric"].dropna().to_list() == [2, 3]


class DiesAt(pl.Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            raise ZeroDivisionError


def test_a_resumed_training_has_the_rows_of_an_uninterrupted_one(tmp_path: Path) -> None:
    """The checkpoint after 4 steps holds rows 0 to 3: Lightning numbers rows from 0."""
    fit([MetricsCsv(tmp_path / "whole")], 8)
    keep = ModelCheckpoint(tmp_path, filename="last", every_n_train_steps=4, save_on_train_epoch_end=False)
    with pytest.raises(ZeroDivisionError):
        fit([MetricsCsv(tmp_path / "cut")], 8, callbacks=[keep, DiesAt(7)], enable_checkpointing=True)
    assert cells(tmp_path / "cut")[-1]["step"] == "6"
    fit([MetricsCsv(tmp_path / "cut", resume_step=3)], 8, checkpoint=tmp_path / "last.ckpt")
    assert cells(tmp_path / "cut") == cells(tmp_path / "whole")


def test_it_survives_pickling_and_a_row_after_its_end(tmp_path: Path) -> None:
    logger = MetricsCsv(tmp_path)
    logger.log_metrics({"train/loss": 1.0}, 0)
    pickle.loads(pickle.dumps(logger)).log_metrics({"train/loss": 2.0}, 1)
    logger.finalize("success")
    logger.log_metrics({"train/loss": 3.0}, 2)
    assert [row["train/loss"] for row in cells(tmp_path)] == ["1.0", "2.0", "3.0"]
