"""What came of comparing matrices: value, chance, ceiling.

The ceiling of a matrix is how alike it is to itself: to the same matrix of a run that differs in its seed
alone. That of a pair is the mean of the two matrices' ceilings. (The correction for attenuation of Spearman
1904 has the geometric mean; the two differ by a hundredth where the ceilings are 0.5 and 0.7.)
"""

from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import NamedTuple

from tielab.alignment.measures import (
    MEASURES,
    Matrix,
    alignment,
    gaussian_chance,
    mean_or_none,
    shuffled_chance,
)

LEAST_DRAWS = 5
"""Shuffles that chance is the mean of; every pair of matrices has at least one."""
LEAST_RANGE = 0.05
"""What is no further above chance is not told from it: no ceiling to divide by, no resemblance."""

Pairs = list[tuple[Matrix, Matrix]]
Ceilings = dict[str, float | None]
"""By measure; None where nothing repeats the matrix."""


class Name(NamedTuple):
    """A matrix as it is called: ``tied``, ``untied in``, ``untied out (seed 1)``."""

    arm: str
    end: str
    which: str = ""
    """Tells apart two runs of one arm."""

    def __str__(self) -> str:
        return f"{self.arm} {self.end}".rstrip() + (f" ({self.which})" if self.which else "")


class Kind(NamedTuple):
    """What the pairs of a comparison have in common."""

    first: Name
    second: Name
    same_run: bool
    """Whether both matrices of a pair are of one run."""


@dataclass
class Plan:
    """The pairs of matrices to compare."""

    compared: dict[Kind, Pairs] = field(default_factory=dict)
    repeated: dict[Name, Pairs] = field(default_factory=dict)
    """Each matrix with itself of another seed."""
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """One measure of all pairs of a kind."""

    kind: Kind
    measure: str
    values: list[float]
    """Of each pair."""
    chance: float
    """Of the same pairs with the rows of one shuffled, where that is not the same for all matrices."""
    gaussian_chance: float
    """Of Gaussian matrices of the same shape, by formula."""
    first_ceiling: float | None
    second_ceiling: float | None

    @property
    def value(self) -> float:
        return fmean(self.values)

    @property
    def sd(self) -> float | None:
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def ceiling(self) -> float | None:
        """The mean of what is known of both sides."""
        known = [one for one in (self.first_ceiling, self.second_ceiling) if one is not None]
        return fmean(known) if known else None

    @property
    def normalized(self) -> float | None:
        """0 at chance, 1 at the ceiling; None without a ceiling, or with one hardly above chance."""
        if self.ceiling is None or self.ceiling - self.chance < LEAST_RANGE:
            return None
        return (self.value - self.chance) / (self.ceiling - self.chance)


@dataclass(frozen=True)
class Results:
    """What ``tielab align`` found."""

    runs: list[str]
    """Those compared, each with its arm and its seed."""
    checkpoint: str
    min_count: int
    num_rows: int
    vocab_size: int
    rows: list[Row]
    warnings: list[str]
    notes: list[str]


def rows_of(plan: Plan) -> list[Row]:
    """Every measure of every kind of pair, as far as the widths allow it."""
    ceilings = {name: _ceilings(pairs) for name, pairs in plan.repeated.items()}
    return [
        row
        for kind, pairs in plan.compared.items()
        for row in _rows(kind, pairs, ceilings[kind.first], ceilings[kind.second])
    ]


def _ceilings(pairs: Pairs) -> Ceilings:
    scores = [alignment(*pair) for pair in pairs]
    return {measure: mean_or_none([score[measure] for score in scores]) for measure in MEASURES}


def _rows(kind: Kind, pairs: Pairs, first: Ceilings, second: Ceilings) -> list[Row]:
    scores = [alignment(*pair) for pair in pairs]
    rows = []
    for measure in MEASURES:
        values = [value for score in scores if (value := score[measure]) is not None]
        if not values:
            continue
        chance = shuffled_chance(measure, pairs, max(len(pairs), LEAST_DRAWS))
        assert chance is not None, f"{measure} has values, but none with shuffled rows"
        formula = gaussian_chance(measure, *pairs[0][0].shape)
        rows.append(Row(kind, measure, values, chance, formula, first[measure], second[measure]))
    return rows
