"""Values between chance and ceiling, and the words for them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tielab.alignment.measures import MEASURES, gaussian_chance
from tielab.alignment.render import records, sentences, to_csv, to_json, to_plain
from tielab.alignment.results import Kind, Name, Plan, Results, Row, rows_of

TIED, IN, OUT = Name("tied", ""), Name("untied", "in"), Name("untied", "out")


def row(first=OUT, second=TIED, values=(0.55,), chance=0.0, ceilings=(0.6, 0.7), same_run=False):
    kind = Kind(first, second, same_run)
    return Row(kind, "linear_held_out", list(values), chance, 0.0, *ceilings)


def results(*rows, warnings=(), notes=()):
    return Results(["A (untied, seed 0)"], "last", 100, 900, 1024, list(rows), list(warnings), list(notes))


def noisy(signal, seed):
    return signal + 0.5 * np.random.default_rng(seed).standard_normal(signal.shape)


def test_the_ceiling_is_the_mean_of_both_sides_and_normalizes():
    one = row(values=[0.5, 0.6], chance=0.15)
    assert one.value == pytest.approx(0.55)
    assert one.ceiling == pytest.approx(0.65)
    assert one.normalized == pytest.approx(0.4 / 0.5)
    assert row(ceilings=(None, 0.7)).ceiling == 0.7


def test_without_a_ceiling_worth_the_name_nothing_is_normalized():
    assert row(ceilings=(None, None)).normalized is None
    assert row(ceilings=(0.04, 0.05)).normalized is None
    assert row(chance=0.9).normalized is None


def test_rows_hold_every_measure_with_value_chance_and_ceiling():
    signal = np.random.default_rng(0).standard_normal((300, 16))
    plan = Plan(
        compared={Kind(OUT, TIED, False): [(noisy(signal, 1), noisy(signal, 2))]},
        repeated={OUT: [(noisy(signal, 1), noisy(signal, 3))], TIED: []},
    )
    rows = rows_of(plan)
    assert [row.measure for row in rows] == list(MEASURES)
    for one in rows:
        assert one.gaussian_chance == gaussian_chance(one.measure, 300, 16)
        assert one.chance == pytest.approx(one.gaussian_chance, abs=0.03)
        # The same signal under the same noise: as alike as a matrix is to itself.
        assert one.second_ceiling is None
        assert one.normalized == pytest.approx(1, abs=0.1)


def test_different_widths_have_no_rows_for_identity_and_procrustes():
    draw = np.random.default_rng(0)
    plan = Plan({Kind(OUT, TIED, False): [(draw.normal(size=(90, 8)), draw.normal(size=(90, 12)))]})
    plan.repeated = {OUT: [], TIED: []}
    assert [row.measure for row in rows_of(plan)] == [
        "linear_in_sample", "linear_held_out", "pairwise_spearman", "neighbor_overlap",
    ]  # fmt: skip


def test_the_sentence_names_the_nearer_end():
    near, far = row(values=[0.5, 0.6]), row(IN, values=[0.4, 0.28], ceilings=(None, None))
    expected = (
        "tied resembles untied out: held-out linear 0.55 of ceiling 0.65, untied in 0.34 "
        "(the nearer one in 2 of 2 pairs of runs)"
    )
    assert sentences(results(near, far)) == sentences(results(far, near)) == [expected]
    disagreeing = row(IN, values=[0.1, 0.7])
    assert sentences(results(near, disagreeing))[0].endswith("(the nearer one in 1 of 2 pairs of runs)")


def test_the_order_of_the_runs_does_not_change_the_sentence():
    (one,) = sentences(results(row(IN, values=[0.3]), row(OUT)))
    (other,) = sentences(results(row(TIED, IN, values=[0.3]), row(TIED, OUT)))
    assert one == other
    assert one.startswith("tied resembles untied out: held-out linear 0.55 of ceiling 0.65, untied in 0.30")


def test_nothing_resembles_what_it_meets_by_chance():
    (said,) = sentences(results(row(OUT, values=[0.02]), row(IN, values=[-0.001])))
    assert said.startswith("tied resembles neither untied out nor untied in: held-out linear 0.02 of ceiling")
    assert "and 0.00 of ceiling" in said


def test_the_ends_of_one_run_have_a_sentence_of_their_own():
    within = row(IN, OUT, values=[0.15], same_run=True)
    across = row(IN, OUT, values=[0.16])
    said = sentences(results(within, across, row(IN, values=[0.3]), row(OUT)))
    assert said[0].startswith(
        "untied in and untied out of the same run: held-out linear 0.15 of ceiling 0.65"
    )
    assert said[1].startswith("untied in and untied out: held-out linear 0.16")
    assert said[2].startswith("tied resembles untied out")
    assert len(said) == 3


def test_plain_text_json_and_csv_have_the_same_numbers():
    found = results(row(values=[0.5, 0.6]), warnings=["both"], notes=["ceiling of tied: b\x1b[1m"])
    plain = to_plain(found)
    assert "untied out  tied        2  linear, held-out  0.550 ± 0.071   0.000    0.650        0.85" in plain
    assert "900 of 1,024 rows, tokens that occur 100 times or more" in plain
    assert "\nwarning: both\n" in plain
    assert "\x1b" not in plain
    content = json.loads(to_json(found))
    assert content["rows"] == records(found)
    assert content["rows"][0]["values"] == [0.5, 0.6]
    assert content["sentences"] == sentences(found)
    heading, line = to_csv(found).splitlines()
    assert heading.startswith("first,second,same_run,measure,num_pairs,num_rows,value,")
    assert line.startswith("untied out,tied,False,linear_held_out,2,900,0.55,0.0707")
    lone = to_csv(results(replace(row(), first_ceiling=None, second_ceiling=None))).splitlines()[1]
    assert lone == "untied out,tied,False,linear_held_out,1,900,0.55,,0.0,0.0,,,,"
