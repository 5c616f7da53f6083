"""All tests of a report are one family: the more there are, the more each must show."""

from dataclasses import replace

from tielab.report.groups import ArmDifference
from tielab.report.statistics import LEVEL, holm, minimum_detectable, t_interval


def adjusted(found: list[ArmDifference]) -> list[ArmDifference]:
    """The differences in the order given, each corrected for all that have a p value.

    The p values by Holm's method. Whatever has to hold for one test whatever the others show, the interval
    that equivalence is judged by and the smallest difference that would have been detected, at the level of
    Holm's first step: 0.05 over the number of tests. The same pairs of runs under several headings are one
    test.
    """
    p_values = {_key(one): p for one in found if (p := one.difference.p_value) is not None}
    holm_p = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    return [_with(one, holm_p[_key(one)], len(p_values)) if _key(one) in holm_p else one for one in found]


def _with(found: ArmDifference, holm_p: float, num_cells: int) -> ArmDifference:
    values = [value for _, value in found.difference.values]
    level = LEVEL / num_cells
    difference = replace(
        found.difference,
        holm_p=holm_p,
        num_cells=num_cells,
        corrected=t_interval(values, level),
        minimum_detectable=minimum_detectable(values, level),
    )
    return replace(found, difference=difference)


def _key(found: ArmDifference) -> frozenset[tuple[int, int]]:
    return frozenset((id(one), id(other)) for one, other in found.pairs.values())
