import math

import numpy as np
import pytest
from scipy import stats

from tielab.report.statistics import (
    bootstrap_interval,
    holm,
    minimum_detectable,
    sign_flip_test,
    t_interval,
    t_test,
)

FIVE = [1.0, 2.0, 3.0, 4.0, 5.0]


def test_the_interval_is_students() -> None:
    # Mean 3, sd sqrt(2.5), t(4, 97.5 %) = 2.7764451: margin 2.7764451 * sqrt(0.5).
    assert t_interval(FIVE) == (pytest.approx(1.0367568), pytest.approx(4.9632432))


def test_the_t_test_by_hand() -> None:
    # Two values, one degree of freedom (Cauchy): mean 0.625, standard error 0.375, t = 5 / 3,
    # p = 1 - 2 / pi * atan(5 / 3) = 0.3440417.
    assert t_test([0.25, 1.0]) == pytest.approx(0.3440417, abs=1e-7)
    # Three values, two degrees of freedom: mean 0.2, sd 0.1, t = 2 sqrt(3), p = 1 - t / sqrt(2 + t^2)
    # = 1 - sqrt(12 / 14) = 0.0741799.
    assert t_test([0.1, 0.2, 0.3]) == pytest.approx(0.0741799, abs=1e-7)
    assert t_test([-0.1, -0.2, -0.3]) == pytest.approx(0.0741799, abs=1e-7)


def test_the_t_test_of_differences_is_the_paired_one_of_scipy() -> None:
    generator = np.random.default_rng(0)
    ones, others = generator.normal(2.0, 0.1, 8), generator.normal(2.05, 0.1, 8)
    assert t_test(list(ones - others)) == pytest.approx(stats.ttest_rel(ones, others).pvalue, rel=1e-9)


def test_equal_values_are_certain_and_zeros_are_not() -> None:
    assert t_test([0.5, 0.5]) == 0.0
    assert t_test([0.0, 0.0]) == 1.0
    assert t_interval([0.5, 0.5]) == (0.5, 0.5)


def test_sign_flips_by_hand() -> None:
    # 1 + 2 + 3 = 6 is the largest of the 8 sums; only it and -6 are as extreme: 2 / 8.
    assert sign_flip_test([1.0, 2.0, 3.0]) == 0.25
    # 4 + 2 - 1 = 5; as extreme are +-7 and +-5: 4 of 8.
    assert sign_flip_test([4.0, 2.0, -1.0]) == 0.5
    # Ten of one sign: 2 / 1024.
    assert sign_flip_test([0.1] * 10) == 2 / 1024
    assert sign_flip_test([0.0, 0.0]) == 1.0


def test_flips_of_one_sum_count_whatever_the_order_of_additions() -> None:
    # 0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ in their last bit.
    for values in ([0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [-0.3, -0.2, -0.1]):
        assert sign_flip_test(values) == 0.25


def test_exact_sign_flips_agree_with_scipy() -> None:
    values = np.random.default_rng(1).normal(0.3, 1.0, 9)
    theirs = stats.permutation_test((values,), np.mean, permutation_type="samples", n_resamples=2**9)
    assert sign_flip_test(list(values)) == pytest.approx(theirs.pvalue)


def test_more_than_twenty_values_are_flipped_at_random_and_the_same_each_time() -> None:
    values = list(np.random.default_rng(2).normal(0.4, 1.0, 24))
    assert sign_flip_test(values) == sign_flip_test(values)
    # For so many values the t test has nearly the same p.
    assert sign_flip_test(values) == pytest.approx(t_test(values), abs=0.01)


def test_the_bootstrap_interval_is_the_same_each_time_and_near_students() -> None:
    values = list(np.random.default_rng(3).normal(1.0, 0.1, 40))
    found = bootstrap_interval(values)
    assert found is not None
    assert found == bootstrap_interval(values)
    assert found == pytest.approx(t_interval(values), abs=0.005)


def test_equal_values_have_no_bootstrap_interval(recwarn: pytest.WarningsRecorder) -> None:
    assert bootstrap_interval([0.5, 0.5, 0.5]) is None
    assert not recwarn.list


def test_the_minimum_detectable_difference_by_hand() -> None:
    # sd sqrt(2.5), standard error sqrt(0.5). The noncentral t with 4 degrees of freedom and noncentrality
    # 3.7610596 is above t(4, 97.5 %) = 2.7764451 in 80 % of cases.
    assert stats.nct.sf(2.7764451, 4, 3.7610596) == pytest.approx(0.8, abs=1e-6)
    assert minimum_detectable(FIVE) == pytest.approx(3.7610596 * math.sqrt(0.5))
    # One of ten tests: the same with t(4, 99.75 %).
    shift = minimum_detectable(FIVE, 0.005) / math.sqrt(0.5)
    assert stats.nct.sf(stats.t.ppf(0.9975, 4), 4, shift) == pytest.approx(0.8)


@pytest.mark.parametrize(("num_values", "effect"), [(199, 0.2), (34, 0.5), (15, 0.8)])
def test_the_least_number_of_pairs_is_that_of_power_tables(num_values: int, effect: float) -> None:
    # G*Power and R's pwr.t.test: paired, two-sided, 5 %, 80 % power: 199, 34 and 15 pairs for Cohen's small,
    # medium and large effect.
    assert unit_sd_detectable(num_values) < effect < unit_sd_detectable(num_values - 1)


def unit_sd_detectable(num_values: int) -> float:
    """In standard deviations."""
    values = list(np.random.default_rng(0).normal(0.0, 1.0, num_values))
    return float(minimum_detectable(values) / np.std(values, ddof=1))


def test_the_minimum_detectable_difference_is_that_of_the_normal_formula_for_many_values() -> None:
    values = list(np.random.default_rng(4).normal(0.0, 0.1, 400))
    num_values = (1.96 + 0.84) ** 2 * np.var(values, ddof=1) / minimum_detectable(values) ** 2
    assert num_values == pytest.approx(400, rel=0.02)


@pytest.mark.parametrize("num_values", [2, 3, 5, 12])
def test_the_minimum_detectable_difference_is_found_four_times_in_five(num_values: int) -> None:
    noise = np.random.default_rng(5).normal(0.0, 1.0, (20_000, num_values))
    p_values = stats.ttest_1samp(noise + unit_sd_detectable(num_values), 0.0, axis=1).pvalue
    # The standard error of the share is 0.003.
    assert np.mean(p_values < 0.05) == pytest.approx(0.8, abs=0.01)


def test_holm_by_hand() -> None:
    # Sorted 0.01, 0.02, 0.03, 0.5: times 4, 3, 2, 1 is 0.04, 0.06, 0.06, 0.5.
    assert holm([0.02, 0.5, 0.01, 0.03]) == pytest.approx([0.06, 0.5, 0.04, 0.06])
    # 0.04 * 2 = 0.08 is the floor of the next, 0.05.
    assert holm([0.05, 0.04]) == pytest.approx([0.08, 0.08])
    assert holm([0.7, 0.8]) == [1.0, 1.0]
    assert holm([0.03]) == [0.03]
    assert holm([]) == []
