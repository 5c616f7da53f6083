import json
import math
from typing import Any

import pytest

from report_records import collected, make_record
from tielab.record import Record
from tielab.report.compare import compare
from tielab.report.rates import RateCurve
from tielab.report.render import to_json, to_plain

RATES = (0.0015, 0.003, 0.006, 0.012, 0.024)


def studied(tied: bool, seed: int, rate: float, bits: float, phase: str = "tune", **changes: Any) -> Record:
    record = make_record(tied=tied, seed=seed, bits_per_byte=bits, **changes)
    record.config["optimizer"]["learning_rate"] = rate
    record.config["study"] = {"tune": "lr", "rates": list(RATES), "tune_seeds": [100, 101], "phase": phase}
    return record


def curve_runs(tied: bool, bits: list[float], **changes: Any) -> list[Record]:
    return [
        studied(tied, seed, rate, value + (seed - 100) / 100, **changes)
        for rate, value in zip(RATES, bits, strict=False)
        for seed in (100, 101)
    ]


# One bit per byte is 4 ln 2 = 2.77 nats per token: 0.003 bits are 0.0083 nats, 0.004 bits 0.0111.
TIED = [2.1, 2.003, 2.0, 2.003, 2.2]
UNTIED = [2.1, 1.9, 1.95, 2.0, 2.3]


def reported(tied_rate: float = 0.006, untied_rate: float = 0.003, num_seeds: int = 5) -> list[Record]:
    return [
        record
        for seed in range(num_seeds)
        for record in (
            studied(True, seed, tied_rate, 2.0 + seed / 1000, "report"),
            studied(False, seed, untied_rate, 1.9, "report"),
        )
    ]


def test_a_curve_has_the_mean_at_every_rate_its_best_and_its_basin() -> None:
    tied, untied = compare(collected(*curve_runs(True, TIED), *curve_runs(False, UNTIED))).rate_curves
    assert (tied.arm, untied.arm, tied.values) == ("tied", "untied", {})
    assert tied.points[0.006] == {"100": 2.0, "101": pytest.approx(2.01)}
    assert list(tied.points) == list(RATES)
    assert (tied.best, tied.interior, tied.basin_low, tied.basin_high) == (0.006, True, 0.003, 0.012)
    assert (untied.best, untied.interior, untied.basin_low, untied.basin_high) == (0.003, True, 0.003, 0.003)


def test_tuning_runs_are_not_compared() -> None:
    comparison = compare(collected(*curve_runs(True, TIED), *curve_runs(False, UNTIED)))
    assert comparison.table.empty
    assert comparison.setting_columns == []
    assert "20 runs, all finished; 20 of them chose learning rates" in to_plain(comparison)
    assert "All runs served to choose a learning rate: nothing to compare yet." in to_plain(comparison)
    assert (
        "tied: best learning rate 0.006 of 5 tried on seeds 100, 101; no run at it on fresh seeds yet"
        in comparison.notes
    )


def test_the_verdict_says_that_each_arm_ran_at_its_best_rate() -> None:
    comparison = compare(collected(*curve_runs(True, TIED), *curve_runs(False, UNTIED), *reported()))
    assert comparison.setting_columns == []
    assert list(comparison.table["chosen_learning_rate"]) == [0.006, 0.003]
    assert comparison.groups[0].differences["tied"].difference.num_pairs == 5
    assert comparison.verdicts[1] == (
        "each arm at its own best learning rate, chosen on seeds 100, 101 and reported on fresh seeds 0-4: "
        "tied 0.006 (interior; within 0.01 nats from 0.003 to 0.012); "
        "untied 0.003 (interior; within 0.01 nats from 0.003 to 0.003)"
    )
    assert not any("not shown to be the best" in note for note in comparison.notes)
    assert '"best": 0.006' in to_json(comparison)


@pytest.mark.parametrize(
    ("tied", "standing"),
    [
        ([1.9, 2.0, 2.1], "the lowest rate tried, so its best may lie beyond"),
        ([2.2, 2.1, 2.0], "the highest rate tried, so its best may lie beyond"),
        ([2.0], "the only rate tried"),
    ],
)
def test_a_best_rate_at_the_edge_is_not_called_the_best(tied: list[float], standing: str) -> None:
    best = RATES[tied.index(min(tied))]
    records = [*curve_runs(True, tied), *curve_runs(False, UNTIED), *reported(best)]
    verdict = compare(collected(*records)).verdicts[1]
    assert verdict.startswith(
        "not every arm is shown to be at its best learning rate, chosen on seeds 100, 101"
    )
    assert f"tied {best} ({standing}" in verdict


def test_an_arm_at_another_rate_than_its_best_is_said() -> None:
    records = [*curve_runs(True, TIED), *curve_runs(False, UNTIED), *reported(0.003)]
    verdict = compare(collected(*records)).verdicts[1]
    assert verdict.startswith("not every arm is shown")
    assert "tied 0.003 (not its best: 0.006)" in verdict


def test_seeds_of_the_choice_are_not_fresh_and_in_no_pair() -> None:
    again = [studied(tied, 100, 0.006 if tied else 0.003, 2.0, "report") for tied in (True, False)]
    records = [*curve_runs(True, TIED), *curve_runs(False, UNTIED), *again]
    comparison = compare(collected(*records))
    assert comparison.verdicts[0] == "no pair of runs may be compared, the notes say why"
    assert "and reported on seed 100 (not fresh: 100 served for the choice)" in comparison.verdicts[1]
    comparison = compare(collected(*records, *reported()))
    found = comparison.groups[0].differences["tied"].difference
    assert [seed for seed, _ in found.values] == ["0", "1", "2", "3", "4"]
    assert list(comparison.table["n"]) == [6, 6]
    assert (
        "seed 100: served to choose a learning rate: part of the mean, not of the difference"
        in comparison.notes
    )


def lost(record: Record) -> Record:
    """The record of a run that diverged."""
    record.status, record.validation = "failed", None
    record.error = {"type": "DivergedError", "message": "the validation loss is nan", "traceback": ""}
    return record


def test_a_rate_at_which_a_seed_diverged_is_the_worst_and_closes_the_curve() -> None:
    tied = curve_runs(True, [2.1, 2.05, 2.0])
    # Seed 100 has the best value of all at the highest rate, seed 101 none.
    tied += [studied(True, 100, 0.012, 1.0), lost(studied(True, 101, 0.012, 2.0))]
    comparison = compare(collected(*tied, *curve_runs(False, UNTIED), *reported()))
    curve = comparison.rate_curves[0]
    assert (curve.best, curve.interior, curve.basin_high, curve.diverged) == (0.006, True, 0.006, [0.012])
    assert curve.points[0.012] == {"100": 1.0, "101": math.inf}
    assert comparison.verdicts[1].startswith("each arm at its own best learning rate")
    assert json.loads(to_json(comparison))["rate_curves"][0]["points"]["0.012"] == {"100": 1.0, "101": None}
    assert "run7 (tied, seed 101): diverged: the validation loss is nan" in comparison.notes
    assert len(comparison.runs) == 7 + 10 + 10


def test_a_rate_with_a_diverged_seed_needs_no_other() -> None:
    runs = [studied(True, seed, rate, 2.0 + rate) for rate in (0.003, 0.006) for seed in (100, 101)]
    (curve,) = compare(collected(*runs, lost(studied(True, 100, 0.0015, 2.0)))).rate_curves
    assert (curve.best, curve.interior) == (0.003, True)


def test_a_run_that_failed_is_no_point() -> None:
    failed = lost(studied(True, 101, 0.012, 2.0))
    failed.error = {"type": "OSError", "message": "disk full"}
    (curve,) = compare(collected(*curve_runs(True, [2.1, 2.05, 2.0]), failed)).rate_curves
    assert (curve.interior, list(curve.points)) == (False, [0.0015, 0.003, 0.006])


def test_an_arm_that_diverged_at_every_rate_has_no_best() -> None:
    tied = [lost(record) for record in curve_runs(True, [2.1, 2.05, 2.0])]
    comparison = compare(collected(*tied, *curve_runs(False, UNTIED)))
    assert (comparison.rate_curves[0].is_known, comparison.rate_curves[0].interior) == (False, False)
    assert "tied: each of 3 learning rates tried on seeds 100, 101 diverged" in comparison.notes
    verdict = compare(collected(*tied, *curve_runs(False, UNTIED), *reported())).verdicts[1]
    assert "tied 0.006 (every rate tried diverged)" in verdict


def test_missing_tuning_runs_are_said() -> None:
    verdict = compare(collected(*curve_runs(True, TIED), *reported())).verdicts[1]
    assert "untied 0.003 (its tuning runs are not here)" in verdict
    assert verdict.startswith("not every arm is shown")


LATE = {"started_at": "2026-03-01T00:00:00+00:00"}


def test_a_late_run_at_another_rate_takes_no_seed_from_the_chosen_one() -> None:
    late = studied(True, 1, 0.012, 2.0, "report", **LATE)
    comparison = compare(collected(*curve_runs(True, TIED), *curve_runs(False, UNTIED), *reported(), late))
    (group,) = comparison.groups
    assert group.learning_rate("tied") == 0.006
    assert group.differences["tied"].difference.num_pairs == 5
    note = "tied, seed 1 at learning rate 0.012: not counted, the arm's is 0.006, the best of its curve"
    assert note in comparison.notes


def test_the_best_of_the_curve_counts_before_a_larger_number() -> None:
    others = [studied(True, seed, 0.012, 2.0, "report", **LATE) for seed in range(5)]
    records = [*curve_runs(True, TIED), *curve_runs(False, UNTIED), *reported(num_seeds=2), *others]
    (group,) = compare(collected(*records)).groups
    assert (group.learning_rate("tied"), len(group.arms["tied"])) == (0.006, 2)


def test_without_a_curve_the_rate_of_most_seeds_counts() -> None:
    late = studied(True, 1, 0.006, 2.0, "report", **LATE)
    comparison = compare(collected(*reported(tied_rate=0.012, num_seeds=2), late))
    (group,) = comparison.groups
    assert group.learning_rate("tied") == 0.012
    assert group.differences["tied"].difference.num_pairs == 2
    note = "tied, seed 1 at learning rate 0.006: not counted, the arm's is 0.012, the one with the most seeds"
    assert note in comparison.notes


def test_of_as_many_seeds_the_later_rate_counts() -> None:
    late = studied(True, 0, 0.006, 2.0, "report", **LATE)
    (group,) = compare(collected(*reported(tied_rate=0.012, num_seeds=1), late)).groups
    assert group.learning_rate("tied") == 0.006


def test_a_late_run_that_diverged_at_another_rate_is_not_held_against_the_arm() -> None:
    late = lost(studied(True, 9, 0.012, 2.0, "report", **LATE))
    (group,) = compare(collected(*reported(), late)).groups
    assert (group.differences["tied"].difference.num_pairs, group.diverged) == (5, {})


def test_a_rate_without_all_seeds_is_not_chosen() -> None:
    lucky = studied(True, 100, 0.006, 1.0)
    runs = [studied(True, seed, rate, 2.0 + rate) for rate in (0.003, 0.012) for seed in (100, 101)]
    (curve,) = compare(collected(*runs, lucky)).rate_curves
    assert (curve.best, list(curve.points)) == (0.003, [0.003, 0.006, 0.012])


def test_every_setting_has_its_curves() -> None:
    runs = [
        studied(tied, 100, rate, 2.0, embed_dim=embed_dim)
        for embed_dim in (64, 128)
        for tied in (True, False)
        for rate in RATES
    ]
    curves: list[RateCurve] = compare(collected(*runs)).rate_curves
    assert [(curve.values, curve.arm) for curve in curves] == [
        ({"embed_dim": 64}, "tied"), ({"embed_dim": 64}, "untied"),
        ({"embed_dim": 128}, "tied"), ({"embed_dim": 128}, "untied"),
    ]  # fmt: skip


def test_tuned_rates_beside_given_ones_are_called_tuned() -> None:
    given = [studied(tied, seed, 0.012, 2.5) for tied in (True, False) for seed in range(3)]
    for record in given:
        record.config["study"] |= {"tune": None, "phase": None}
    runs = [*curve_runs(True, TIED), *curve_runs(False, UNTIED), *reported(), *given]
    comparison = compare(collected(*runs))
    assert comparison.setting_columns == ["learning_rate"]
    assert list(comparison.table["learning_rate"]) == [0.012, 0.012, "tuned", "tuned"]
    assert not any("chosen on these same runs" in verdict for verdict in comparison.verdicts)
