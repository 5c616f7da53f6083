"""Runs that were trained to the end and came out as no number: they have no mean, yet they are an outcome."""

from dataclasses import replace

from tielab.report.arms import arm_of
from tielab.report.axes import Placed
from tielab.report.groups import Columns, Group, values_at
from tielab.report.pairing import PairedDifference
from tielab.report.settings import seeds_of


def note_divergence(groups: list[Group], places: list[Placed], columns: Columns) -> None:
    """Give each group the diverged runs of its setting; a seed that has a finished run too is no loss."""
    for place in places:
        arm, seeds = arm_of(place.run), seeds_of(place.run.record)
        for group in groups:
            if group.values == values_at(place, columns) and seeds not in group.arms.get(arm, {}):
                group.diverged.setdefault(arm, {})[seeds] = place.run


def count_divergence(group: Group) -> None:
    """Tell each difference of the group on how many seeds its two arms diverged."""
    for arm, found in group.differences.items():
        group.differences[arm] = replace(found, difference=with_divergence(found.difference, group, group))


def with_divergence(difference: PairedDifference, ours: Group, theirs: Group) -> PairedDifference:
    """The difference, told on how many seeds its arm diverged in its group, and the reference in its own."""
    one, other = difference.arm, difference.reference
    diverged = (len(ours.diverged.get(one, {})), len(theirs.diverged.get(other, {})))
    finished = (len(ours.arms[one]), len(theirs.arms[other]))
    num_seeds = (finished[0] + diverged[0], finished[1] + diverged[1])
    return replace(difference, diverged=diverged, num_seeds=num_seeds)
