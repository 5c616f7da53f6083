import pytest

from report_records import make_config, make_record
from tielab.report.pairing import PairedDifference, refusals, t_interval, warnings


def test_equal_runs_have_nothing_against_them() -> None:
    assert refusals(make_record(), make_record(tied=False)) == []
    assert warnings(make_record(), make_record(tied=False)) == []


def test_precision_is_refused() -> None:
    config = make_config(tied=False, seed=0)
    config["trainer"]["precision"] = "bf16-mixed"
    assert refusals(make_record(), make_record(tied=False, config=config)) == [
        "config.trainer.precision differs (tied 32-true, untied bf16-mixed)"
    ]


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (None, None, "one seed: no claim"),
        (-0.1, 0.2, "no difference shown"),
        (0.0, 0.2, "no difference shown"),
        (0.01, 0.2, "untied better"),
        (-0.2, -0.01, "tied better"),
    ],
)
def test_the_verdict_follows_the_interval(low: float | None, high: float | None, verdict: str) -> None:
    mean = 0.1 if low is None or high is None else (low + high) / 2
    assert PairedDifference(2, mean, low, high, 0.0).verdict == verdict


def test_the_interval_is_students() -> None:
    low, high = t_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    # Mean 3, sd sqrt(2.5), t(4, 97.5 %) = 2.7764451.
    assert (low, high) == (pytest.approx(1.0367568), pytest.approx(4.9632432))
