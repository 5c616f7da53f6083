"""How often the report's words claim a difference where there is none, and find one where there is."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from report_records import collected, make_record
from tielab.report import pairing
from tielab.report.collect import Collected, CollectedRun
from tielab.report.compare import compare
from tielab.report.families import adjusted
from tielab.report.groups import ArmDifference, Group
from tielab.report.pairing import paired_difference
from tielab.report.tuning import best_rates

NUM_STUDIES, NUM_SEEDS, NOISE = 200, 5, 0.02
AT_MOST = int(stats.binom.ppf(0.999, NUM_STUDIES, 0.05))
"""No more false claims than this in 200 studies are in accord with 5 %: 20."""


@pytest.fixture(autouse=True)
def no_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no part of the verdict and takes most of the time."""
    monkeypatch.setattr(pairing, "bootstrap_interval", lambda values: None)


def study(generator: np.random.Generator, shift: float = 0.0) -> ArmDifference:
    """Pairs that share the luck of their seed, with a true difference of ``shift`` bits per byte."""
    others = generator.normal(2.0, 0.2, NUM_SEEDS)
    ones = others + generator.normal(shift, NOISE, NUM_SEEDS)
    pairs = {
        str(seed): (
            make_record(seed=seed, bits_per_byte=float(ones[seed])),
            make_record(tied=False, seed=seed, bits_per_byte=float(others[seed])),
        )
        for seed in range(NUM_SEEDS)
    }
    return ArmDifference("untied", paired_difference(pairs), pairs)


def claims(found: ArmDifference) -> bool:
    return found.difference.verdict.endswith("better")


def test_equal_arms_are_told_apart_in_no_more_than_five_of_a_hundred_studies() -> None:
    generator = np.random.default_rng(0)
    false_claims = sum(claims(study(generator)) for _ in range(NUM_STUDIES))
    assert 0 < false_claims <= AT_MOST


def test_a_family_of_equal_cells_claims_anything_in_no_more_than_five_of_a_hundred_reports() -> None:
    generator = np.random.default_rng(1)
    reports = [[study(generator) for _ in range(6)] for _ in range(NUM_STUDIES)]
    unadjusted = sum(any(map(claims, cells)) for cells in reports)
    false_claims = sum(any(map(claims, adjusted(cells))) for cells in reports)
    assert false_claims <= AT_MOST < unadjusted


def null_study(generator: np.random.Generator) -> Collected:
    """The runs of two equal arms in three settings."""
    records = []
    for vocab_size in (512, 1024, 2048):
        luck = generator.normal(2.0, 0.2, NUM_SEEDS)
        for tied in (True, False):
            bits = luck + generator.normal(0.0, NOISE, NUM_SEEDS)
            records += [
                make_record(tied=tied, seed=seed, bits_per_byte=float(bits[seed]), vocab_size=vocab_size)
                for seed in range(NUM_SEEDS)
            ]
    return collected(*records)


def test_reports_on_equal_arms_claim_anything_in_no_more_than_five_of_a_hundred(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The table repeats what the verdicts are made of, and takes most of the time.
    monkeypatch.setattr("tielab.report.compare.table_of", lambda groups, names: None)
    generator = np.random.default_rng(4)
    reports = [compare(null_study(generator)).verdicts for _ in range(NUM_STUDIES)]
    assert {len(verdicts) for verdicts in reports} == {3}
    false_claims = sum(any(" better by " in line for line in verdicts) for verdicts in reports)
    assert 0 < false_claims <= AT_MOST


def test_equal_curves_at_the_same_rates_are_told_apart_in_no_more_than_five_of_a_hundred() -> None:
    generator = np.random.default_rng(5)
    claimed = 0
    for _ in range(NUM_STUDIES):
        groups = [equal_arms_at(rate, generator) for rate in (0.001, 0.002, 0.004, 0.008)]
        (best,) = best_rates(groups)
        assert best.found is not None
        claimed += claims(best.found)
    assert claimed <= AT_MOST


def equal_arms_at(rate: float, generator: np.random.Generator) -> Group:
    arms = {
        name: {
            (seed,) * 3: CollectedRun(
                Path(name), make_record(tied=name == "tied", seed=seed, bits_per_byte=float(bits))
            )
            for seed, bits in enumerate(generator.normal(2.0, NOISE, NUM_SEEDS))
        }
        for name in ("tied", "untied")
    }
    return Group({"learning_rate": rate}, arms, {"tied": "untied"})


def test_a_planted_difference_is_found_with_its_sign_and_size() -> None:
    generator = np.random.default_rng(2)
    found = [study(generator, 0.05) for _ in range(100)]
    assert sum(one.difference.verdict == "untied better" for one in found) >= 90
    assert np.mean([one.difference.mean for one in found]) == pytest.approx(0.05, abs=0.003)
    covered = [
        one.difference.low <= 0.05 <= one.difference.high
        for one in found
        if one.difference.low is not None and one.difference.high is not None
    ]
    assert sum(covered) >= 90


def test_a_planted_difference_is_found_among_equal_cells() -> None:
    generator = np.random.default_rng(3)
    cells = adjusted([study(generator), study(generator, 0.2), *(study(generator) for _ in range(4))])
    assert [claims(cell) for cell in cells] == [False, True, False, False, False, False]
    assert {cell.difference.num_cells for cell in cells} == {6}
