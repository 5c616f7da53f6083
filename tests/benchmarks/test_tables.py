"""The benchmarks' page: its tables are made of the results, and of nothing else."""

import json

import pytest
from benchmarks.measure import RESULTS, describe_quiet, interleave, is_quiet, quartiles, ratios

from benchmarks import tables

PAGE = "before\n<!-- head -->\nold\n<!-- end head -->\nafter\n"


def test_the_page_is_what_its_results_make_of_it():
    page = tables.README.read_text(encoding="utf-8")
    assert tables.renewed(page) == page
    for path in RESULTS.glob("*.json"):
        assert f"`{json.loads(path.read_text(encoding='utf-8'))['command']}`" in page


def test_only_what_stands_between_the_markers_is_replaced():
    assert tables.renew(PAGE, "head", "new") == PAGE.replace("old", "new")
    with pytest.raises(ValueError, match="no <!-- start -->"):
        tables.renew(PAGE, "start", "new")


def test_a_figure_stands_with_its_quartiles():
    row = {"seconds": quartiles([1.0, 2.0, 4.0]), "n": 3, "once": 2.0}
    assert tables.number("seconds", 1)(row) == "2.0 (1.5 to 3.0)"
    assert tables.scaled("seconds", 1e3, 0)(row) == "2,000 (1,500 to 3,000)"
    assert tables.number("once")(row) == "2.00"
    assert tables.number("absent")(row) == ""
    assert tables.own_quartiles()({"median": 2.0, "low": 2.0, "high": 2.0, "n": 1}) == "2.00"
    assert tables.own_quartiles()({"median": 2.0, "low": 1.0, "high": 3.0, "n": 2}) == "2.00 (1.00 to 3.00)"


def test_arms_take_turns_and_their_ratios_are_of_one_round():
    calls = []
    arms = {name: lambda name=name: calls.append(name) or float(len(calls)) for name in "ab"}
    found = interleave(arms, rounds=3)
    assert "".join(calls) == "abbaab"
    assert ratios(found["a"], found["b"])["median"] == quartiles([1 / 2, 4 / 3, 5 / 6])["median"]


@pytest.mark.parametrize(
    ("change", "quiet"),
    [({}, True), ({"slowest": 0.6}, False), ({"stolen": 0.2}, False), ({"busy_before": 0.2}, False)],
)
def test_a_machine_is_quiet_when_it_is_idle_and_keeps_its_speed(change, quiet):
    seen = {"busy_before": 0.01, "stolen": 0.0, "slowest": 0.95, "product_flops_per_second": 3e11, **change}
    assert is_quiet(seen) is quiet
    assert f"at 300 GFLOP/s at one end, {seen['slowest']:.0%} of that at the other" in describe_quiet(seen)
    old = {"busy_before": 0.01, "stolen": 0.0}
    assert is_quiet(old)
    assert "GFLOP" not in describe_quiet(old)
