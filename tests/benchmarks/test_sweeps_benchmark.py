"""The benchmark of sweeps counts what it says, and runs unattended."""

import json

import pytest
from benchmarks.sweeps import Swept, main


def record(seconds, **phases):
    return {"seconds": seconds, "seconds_by_phase": phases}


def test_overhead_is_what_is_neither_training_nor_validation():
    done = record(10.5, data=0.1, train=8.0, validation=2.0)
    found = Swept(60.0, [1.0, 20.0, 31.0, 42.0], [done] * 4).overheads()
    assert len(found) == 2  # neither the first nor the last
    assert found[0] == pytest.approx(
        {"overhead": 1.0, "process": 0.5, "data": 0.1, "model_trainer_files": 0.4}
    )


@pytest.mark.slow
def test_sweeps_are_measured(tmp_path, cache_dir):
    main(["--quick", "--out", str(tmp_path)])
    result = json.loads((tmp_path / "sweeps.json").read_text())
    rows = {row["what"]: row for row in result["rows"]}
    assert 0 < rows["overhead_seconds_per_job"]["median"] < rows["seconds_in_turn"]["median"]
    assert rows["two_at_a_time_to_in_turn"]["median"] > 0
    threads = [rows[f"job_seconds_{arm}"]["threads"] for arm in ("two_at_a_time", "in_turn_same_threads")]
    assert threads == [threads[0]] * 2
    assert threads[0] <= rows["job_seconds_in_turn"]["threads"]
