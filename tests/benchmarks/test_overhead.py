"""Both loops of the overhead benchmark do the same steps, and their result has every figure."""

import json

import pytest
from benchmarks.overhead import QUICK, measured, part_rows

from benchmarks import overhead

QUIET = ["logger=none", "trainer.num_threads=1"]


@pytest.fixture(scope="module")
def found():
    return measured("tiny", QUICK, QUIET, by_hook=True)


def test_the_plain_loop_ends_with_the_harness_s_weights(found):
    assert found.same_weights


def test_there_is_a_pair_of_times_for_every_slice(found):
    assert len(found.harness) == len(found.plain) == QUICK.num_slices


def test_the_parts_add_up_to_what_the_harness_adds(found):
    rows = {row["part"]: row["microseconds_per_step"] for row in part_rows("tiny", found)}
    within = rows.pop("loggers, within TrainLog")
    added = overhead.step_row("tiny", found)["added_microseconds_per_step"]["median"]
    assert sum(rows.values()) == pytest.approx(added, abs=1e-3)
    assert 0 < within < rows["TrainLog.on_train_batch_end"]


def test_the_result_has_the_step_and_its_parts(tmp_path, monkeypatch, found):
    monkeypatch.setattr(overhead, "measured", lambda *asked, **options: found)
    overhead.main(["--quick", "--out", str(tmp_path)])
    rows = json.loads((tmp_path / "overhead.json").read_text(encoding="utf-8"))["rows"]
    assert rows[0]["harness_over_plain"]["n"] == QUICK.num_slices
    assert "TieGuard.on_train_batch_start" in {row.get("part") for row in rows}
