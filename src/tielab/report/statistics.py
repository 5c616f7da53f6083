"""What a handful of paired differences show: intervals, tests, and what they could have shown.

Numbers in, numbers out; everything else knows which runs they belong to. Two or more values each.
"""

import math
import warnings
from functools import cache
from statistics import fmean, stdev

EXACT_SIGN_FLIPS = 20
"""Up to so many values every one of the 2^n sign flips is counted; above it a sample of them."""
NUM_RESAMPLES = 9_999
SEED = 0
LEVEL, POWER = 0.05, 0.8


def t_interval(values: list[float], level: float = LEVEL) -> tuple[float, float]:
    """The interval of the mean at 1 - ``level``, by Student's t; a point for equal values."""
    margin = _t_quantile(1 - level / 2, len(values)) * _standard_error(values)
    mean = fmean(values)
    return mean - margin, mean + margin


def t_test(values: list[float]) -> float:
    """Two-sided p of Student's t test that the mean is zero.

    Of differences this is the paired t test. Equal values other than zero have p 0, zeros have p 1.
    """
    # scipy.stats has the same function but takes a second to import, and warns where values are equal.
    from scipy.special import stdtr

    mean, error = fmean(values), _standard_error(values)
    if error == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2 * stdtr(len(values) - 1, -abs(mean) / error))


def sign_flip_test(values: list[float]) -> float:
    """Two-sided p of the mean when the sign of every difference is a fair coin (Fisher's randomization test).

    Exact over all 2^n sign flips up to ``EXACT_SIGN_FLIPS`` values, so never below 2 / 2^n; above that
    ``NUM_RESAMPLES`` flips drawn with a fixed seed.
    """
    import numpy as np

    if len(values) > EXACT_SIGN_FLIPS:
        from scipy.stats import permutation_test

        drawn = permutation_test(
            (np.array(values),),
            np.mean,
            permutation_type="samples",
            n_resamples=NUM_RESAMPLES,
            random_state=SEED,
        )
        return float(drawn.pvalue)
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    # A flip that gives the same sum in another order of additions is as extreme as the observed one.
    rounding = 1e-12 * math.fsum(abs(value) for value in values)
    return float(np.mean(np.abs(sums) >= abs(math.fsum(values)) - rounding))


def bootstrap_interval(values: list[float]) -> tuple[float, float] | None:
    """The 95 % BCa bootstrap interval of the mean (Efron 1987), the same at every call.

    None where it does not exist: the values are equal.
    """
    import numpy as np
    from scipy.stats import bootstrap

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of equal values, whose interval is not a number
        found = bootstrap(
            (np.array(values),), np.mean, n_resamples=NUM_RESAMPLES, random_state=SEED, method="BCa"
        )
    low, high = map(float, found.confidence_interval)
    return None if math.isnan(low) or math.isnan(high) else (low, high)


def minimum_detectable(values: list[float], level: float = LEVEL) -> float:
    """The true mean that a two-sided t test of so many values at ``level`` finds four times in five.

    Exact if the true standard deviation is that of the values: t then follows the noncentral t distribution
    with n - 1 degrees of freedom, whose noncentrality is mean * sqrt(n) / sd. The chance to find the
    difference with the wrong sign is left out; at this power it is below 1e-9.
    """
    return _detectable_noncentrality(len(values), level) * _standard_error(values)


@cache
def _detectable_noncentrality(num_values: int, level: float) -> float:
    from scipy.optimize import brentq
    from scipy.special import nctdtr

    critical = _t_quantile(1 - level / 2, num_values)

    def lack_of_power(noncentrality: float) -> float:
        return float(POWER - (1 - nctdtr(num_values - 1, noncentrality, critical)))

    # With one degree of freedom, the fewest, the noncentrality wanted is 1.3 times the critical value.
    return float(brentq(lack_of_power, 0, 2 * critical + 2))


def holm(p_values: list[float]) -> list[float]:
    """The p values adjusted for their number (Holm 1979), in the order given.

    The smallest is multiplied by k, the next by k - 1 and so on; none is below one that was smaller.
    """
    adjusted, floor = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        floor = max(floor, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = floor
    return adjusted


def _t_quantile(probability: float, num_values: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(num_values - 1, probability))


def _standard_error(values: list[float]) -> float:
    return stdev(values) / math.sqrt(len(values))
