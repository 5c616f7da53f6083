"""The benchmark of sweeps counts what it says, and runs unattended."""

import json

import pytest
from benchmarks.sweeps import Swept, main, seconds_between_steps


def record(seconds, **phases):
    return {"seconds": seconds, "seconds_by_phase": phases}


def test_overhead_is_what_is_neither_training_nor_validation():
    done = record(10.5, data=0.1, train=8.0, validation=2.0)
    found = Swept(60.0, [1.0, 20.0, 31.0, 42.0], [done] * 4, [0.1] * 4).overheads()
    assert len(found) == 2  # neither the first nor the last
    assert found[0] == pytest.approx(
        {"overhead": 1.0, "process": 0.5, "data": 0.1, "between_steps": 0.1, "model_trainer_files": 0.3}
    )


def test_what_passes_between_steps_is_read_from_the_whole_intervals_of_the_throughput(tmp_path):
    (tmp_path / "metrics.csv").write_text(
        "step,tokens,seconds,train/loss,tokens_per_second\n"
        "1,100,3.0,5,\n10,1000,4.0,5,\n20,2000,5.2,5,1000\n"
        "20,2000,9.0,,\n"  # a validation's
        "30,3000,6.3,5,1000\n35,3500,9.9,5,1000\n"
    )
    # 0.2 s and 0.1 s beside 2,000 of 3,500 tokens.
    assert seconds_between_steps(tmp_path / "metrics.csv") == pytest.approx(0.3 * 3500 / 2000)


@pytest.mark.slow
def test_sweeps_are_measured(tmp_path, cache_dir):
    main(["--quick", "--out", str(tmp_path)])
    result = json.loads((tmp_path / "sweeps.json").read_text())
    rows = {row["what"]: row for row in result["rows"]}
    assert 0 < rows["overhead_seconds_per_job"]["median"] < rows["seconds_in_turn"]["median"]
    assert rows["two_at_a_time_to_in_turn"]["median"] > 0
    threads = [rows[f"job_seconds_{arm}"]["threads"] for arm in ("two_at_a_time", "in_turn")]
    assert threads[0] <= threads[1]
