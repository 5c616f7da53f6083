"""Whole runs on part of the text, for a budget in bytes, checked at other strides."""

import math

import pytest

from tielab.checkpoint import read_checkpoint
from tielab.data.budget import planned_tokens
from tielab.data.prepare import prepare
from tielab.record import read_record

PART = ("data.train_tokens=1000", "budget.tokens=null")


def run_of(main, tmp_path, *arguments):
    assert main(*arguments) == 0
    (folder,) = (tmp_path / "outputs" / "runs").iterdir()
    return folder, read_record(folder)


def test_the_record_says_what_was_trained_on_and_how_each_stride_scored(main, tiny, tmp_path):
    folder, record = run_of(main, tmp_path, *tiny, *PART, "budget.bytes=4000", "data.check_strides=[4,1]")
    assert planned_tokens(record.config["budget"], prepare(record.config["data"])) == 4000  # ASCII
    assert record.tokens_seen == 32 * 8 * 16 == 4096  # rounded up to a step
    assert record.data["train"]["num_tokens"] == 1000
    assert record.epochs == 4.096
    assert 0 <= record.data["train"]["unused_ids"] < 64
    assert list(record.stride_validations) == ["4", "1"]
    for validation in record.stride_validations.values():
        for name in ("num_tokens", "num_bytes", "num_words", "content_hash", "tokens_seen"):
            assert validation[name] == record.validation[name]
        assert validation["nats"] != record.validation["nats"]
        assert validation["bits_per_byte"] == pytest.approx(record.validation["bits_per_byte"], rel=0.1)
        assert validation["word_perplexity"] == pytest.approx(
            math.exp(validation["nats"] / validation["num_words"])
        )
    assert record.validation["num_words"] == record.data["validation"]["num_scored_words"]
    columns = (folder / "metrics.csv").read_text().splitlines()
    assert sum("val" in line for line in columns) == 1
    assert len([line for line in columns[1:] if line.split(",")[7]]) == 2  # validations, as asked for


def test_strides_change_nothing_else(main, tiny, tmp_path):
    assert main("-m", *tiny, *PART, "budget.bytes=1000", "data.check_strides=[],[8]") == 0
    (sweep,) = (tmp_path / "outputs" / "sweeps").iterdir()
    without, checked = (read_record(sweep / job) for job in "01")
    assert without.stride_validations == {}
    assert list(checked.stride_validations) == ["8"]
    for name in ("weights_hash", "validation", "best_validation", "train_loss", "batch_hash", "tokens_seen"):
        assert getattr(without, name) == getattr(checked, name), name
    assert main("-m", *tiny, *PART, "budget.bytes=1000", "data.eval_stride=8", "output_dir=other") == 0
    (other,) = (tmp_path / "other" / "sweeps").iterdir()
    assert checked.stride_validations["8"] == read_record(other / "0").validation
    for job, record in (("0", without), ("1", checked)):
        checkpoint = read_checkpoint(sweep / job / "checkpoints" / "last.ckpt", {})
        assert checkpoint["tielab"]["validations"][-1]["nats"] == record.validation["nats"]
        assert len(checkpoint["tielab"]["validations"]) == 2


def test_a_part_beyond_the_text_is_refused_before_anything_starts(main, tiny, tmp_path, capsys):
    assert main(*tiny, "data.train_tokens=10000000") == 2
    assert "data.train_tokens=10000000 were asked for, the train split has" in capsys.readouterr().err
    assert not list(tmp_path.rglob("record.json"))


@pytest.mark.distributed
def test_two_processes_score_each_stride_as_one(main, tiny, tmp_path):
    command = ("-m", *tiny, *PART, "budget.bytes=1000", "data.check_strides=[4,1]", "model.dropout=0.0")
    assert main(*command, "trainer=cpu") == 0
    assert main(*command, "trainer=ddp_cpu,fsdp_cpu", "trainer.devices=2", "output_dir=two") == 0
    (job,) = (tmp_path / "outputs" / "sweeps").glob("*/0")
    one, others = read_record(job), [read_record(job) for job in (tmp_path / "two" / "sweeps").glob("*/?")]
    assert len(others) == 2
    for two in others:
        assert (one.num_processes, two.num_processes) == (1, 2)
        for stride in ("4", "1"):
            first, second = one.stride_validations[stride], two.stride_validations[stride]
            assert first["num_tokens"] == second["num_tokens"]
            assert first["nats"] == pytest.approx(second["nats"], rel=1e-4)


def test_a_run_taken_up_again_is_scored_at_each_stride(main, tiny, tmp_path):
    command = ("-m", *tiny, *PART, "budget.bytes=4000", "data.check_strides=[4]", "resume=true")
    assert main(*command, **{"0": "terminate@20"}) == 130
    (job,) = (tmp_path / "outputs" / "sweeps").glob("*/0")
    assert read_record(job).stride_validations == {}
    assert main(*command) == 0
    assert main(*command, "output_dir=other") == 0
    (whole,) = (tmp_path / "other" / "sweeps").glob("*/0")
    resumed, uninterrupted = read_record(job), read_record(whole)
    assert resumed.resumed_at_step == 20
    assert resumed.stride_validations == uninterrupted.stride_validations
    assert list(resumed.stride_validations) == ["4"]
