"""Records in, one comparison out: a row per setting and arm, with the paired difference from its reference.

Only finished runs whose tie was observed as configured give numbers; those that diverged are counted.
Everything that was left out, refused or doubtful is a note; nothing is dropped in silence.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tielab.report.arms import references, with_shared_keys
from tielab.report.axes import AXIS_COLUMN, Placed, placed
from tielab.report.collect import Collected, CollectedRun
from tielab.report.divergence import count_divergence, note_divergence
from tielab.report.families import adjusted
from tielab.report.groups import (
    Columns,
    Group,
    changed_code,
    grouped,
    pair,
    problem,
    run_name,
    schemes,
    values_at,
)
from tielab.report.notes import doubts, notes_on_scope, nothing_solved, solved_sizes
from tielab.report.rates import (
    RateCurve,
    at_one_rate,
    note_reuse,
    rate_curves,
    tuned_rate_verdicts,
    unreported,
)
from tielab.report.settings import fixed_values, setting_of, short_name, study_phase, varying_columns
from tielab.report.table import table_of
from tielab.report.tuning import BestRates, best_rates
from tielab.report.verdicts import group_verdicts
from tielab.report.wording import one_line

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Comparison:
    """The table in full precision, and what a reader must know beside it; it shows itself."""

    table: "pd.DataFrame"
    """As ``table_of`` says."""
    setting_columns: list[str]
    headline: str
    """How many of the runs give numbers."""
    verdicts: list[str]
    """A line for each comparison of two arms in a setting, then for each setting what is known of its
    learning rates."""
    notes: list[str]
    groups: list[Group]
    rate_curves: list[RateCurve]
    fixed: dict[str, Any]
    """The dotted keys that are equal in all runs, with their values."""
    runs: list[tuple[CollectedRun, dict[str, Any]]]
    """Every run that gives a number, once, with the values of its setting columns."""

    def __repr__(self) -> str:
        from tielab.report.render import to_plain

        return to_plain(self).rstrip("\n")

    def _repr_html_(self) -> str:
        from tielab.report.fragment import fragment

        return fragment(self)

    def to_pandas(self) -> "pd.DataFrame":
        """A copy of the table in full precision."""
        return self.table.copy()


def compare(collected: Collected, baseline: str | None = None) -> Comparison:
    """Compare the arms of every setting, paired by seed.

    Args:
        baseline: the arm that all others are compared with.

    Raises:
        RequestError: no arm has the baseline's name.
    """
    collected = collected._replace(runs=with_shared_keys(collected.runs))
    usable = [run for run in collected.runs if problem(run.record) is None]
    places = placed([run for run in collected.runs if run.record.diverged or problem(run.record) is None])
    columns = _columns(collected, places)
    notes = _notes_on_runs(collected, usable, columns)
    curves = rate_curves([place for place in places if _is_tuning(place)], columns)
    reported = at_one_rate([place for place in places if not _is_tuning(place)], curves, columns, notes)
    groups = grouped([place for place in reported if not place.run.record.diverged], columns, notes)
    note_divergence(groups, [place for place in reported if place.run.record.diverged], columns)
    note_reuse(groups, curves, notes)
    at_best = _pair_all(groups, baseline, notes)
    notes += doubts(groups) + solved_sizes(groups) + nothing_solved(groups) + unreported(groups, curves)
    notes += notes_on_scope([run.record for run in usable], columns, groups)
    names = [short_name(key) for key in columns]
    runs = _runs(groups, places, columns)
    return Comparison(
        table=table_of(groups, names),
        setting_columns=names,
        headline=_headline(runs, len(collected.runs) + len(collected.unreadable)),
        verdicts=group_verdicts(groups)
        + tuned_rate_verdicts(groups, curves)
        + [best.verdict for best in at_best],
        notes=[one_line(note) for note in dict.fromkeys(notes)],
        groups=groups,
        rate_curves=curves,
        fixed=fixed_values([run.record for run in usable], {place.axis.name for place in places}),
        runs=runs,
    )


def _is_tuning(place: Placed) -> bool:
    return study_phase(place.run.record) == "tune"


def _columns(collected: Collected, places: list[Placed]) -> Columns:
    columns = varying_columns([setting_of(run.record) for run in collected.runs])
    if any(place.axis.is_solved for place in places):
        columns[AXIS_COLUMN] = []
    return columns


def _notes_on_runs(collected: Collected, usable: list[CollectedRun], columns: Columns) -> list[str]:
    notes = [
        f"{run_name(run, columns)}: {reason}" for run in collected.runs if (reason := problem(run.record))
    ]
    notes += [f"{run.folder}: cannot be read: {run.reason}" for run in collected.unreadable]
    return notes + [
        f"{run_name(run, columns)}: {change}" for run in usable if (change := changed_code(run.record))
    ]


def _pair_all(groups: list[Group], baseline: str | None, notes: list[str]) -> list[BestRates]:
    """Fill in every group's differences; those at a sweep's best rates are in the same family of tests."""
    ran = [scheme for group in groups for scheme in schemes(group)]
    at_width = references(ran, baseline)
    for group in groups:
        is_solved = group.axis.is_solved
        pair(group, references(ran, baseline, group.axis.adjusted) if is_solved else at_width, notes)
        count_divergence(group)
    at_best = best_rates(groups)
    places = [(group, arm) for group in groups for arm in group.differences]
    tests = [group.differences[arm] for group, arm in places]
    tests = adjusted(tests + [best.found for best in at_best if best.found is not None])
    for group, arm in places:
        group.differences[arm] = tests.pop(0)
    return [best if best.found is None else replace(best, found=tests.pop(0)) for best in at_best]


def _runs(
    groups: list[Group], places: list[Placed], columns: Columns
) -> list[tuple[CollectedRun, dict[str, Any]]]:
    """The compared runs in the order of the table, then the tuning runs; each once."""
    found = [(run, group.values) for group in groups for arm in group.arms.values() for run in arm.values()]
    found += [(place.run, values_at(place, columns)) for place in places if _is_tuning(place)]
    found = [(run, values) for run, values in found if not run.record.diverged]
    first: dict[int, tuple[CollectedRun, dict[str, Any]]] = {}
    for run, values in found:
        first.setdefault(id(run), (run, values))
    return list(first.values())


def _headline(runs: list[tuple[CollectedRun, dict[str, Any]]], num_found: int) -> str:
    num_tuning = sum(study_phase(run.record) == "tune" for run, _ in runs)
    tuning = f"; {num_tuning} of them chose learning rates" if num_tuning else ""
    if len(runs) == num_found:
        return f"{num_found} {'run' if num_found == 1 else 'runs'}, all finished{tuning}"
    return f"{len(runs)} of {num_found} runs give numbers, the notes say why the others do not{tuning}"
