"""``tielab align SWEEP``: the matrices of all arms over all pairs of runs that began with other values."""

from itertools import combinations, product
from pathlib import Path

from tielab.alignment.matrices import INPUT, OUTPUT, TokenRun, check_same_ends, load_token_runs
from tielab.alignment.results import Kind, Name, Pairs, Plan, Results, rows_of
from tielab.alignment.runs import description, differences, differing_keys
from tielab.errors import RequestError
from tielab.report.arms import arm_of
from tielab.report.collect import CollectedRun, collect_runs
from tielab.report.settings import seeds_of, study_phase


def align_sweep(folder: Path, checkpoint: str, min_count: int) -> Results:
    """Compare the token matrices of the arms in a folder, each kind of pair over all seeds.

    Raises:
        RequestError: no finished runs, an arm with several settings, or nothing to compare.
    """
    collected = collect_runs([folder]).runs
    arms = _arms(folder, collected)
    runs = [run for arm in arms.values() for run in arm]
    loaded = load_token_runs(runs, checkpoint, min_count)
    tokens = [[loaded.runs[run.folder] for run in arm] for arm in arms.values()]
    for arm_runs in tokens:
        check_same_ends(arm_runs)
    plan = Plan(notes=differences(runs))
    if len(runs) < len(collected):
        plan.notes.append(
            f"{len(collected) - len(runs)} of {len(collected)} runs left out: unfinished, repeated, for a "
            "learning rate to be chosen, or of a size that was solved to match another arm"
        )
    for arm in tokens:
        _add_within(plan, arm)
    for arm, other_arm in combinations(tokens, 2):
        for end, other_end in product(arm[0].matrices, other_arm[0].matrices):
            _add(plan, arm, end, other_arm, other_end)
    if not plan.compared:
        raise RequestError(
            f"{folder} has no two matrices of runs with different seeds to compare, found the arms "
            f"{', '.join(arms)}; train both arms with two seeds or more, or name two runs"
        )
    described = [description(run) for run in runs]
    return Results(
        described, checkpoint, min_count, loaded.num_rows, loaded.vocab_size, rows_of(plan), plan.warnings,
        plan.notes,
    )  # fmt: skip


def _arms(folder: Path, collected: list[CollectedRun]) -> dict[str, list[CollectedRun]]:
    """The finished runs by arm as asked for, of repeated ones the last; not those that chose a learning rate.

    Untied arms come first, so that the linear maps lead from them to the tied one, as in Lopardo et al. 2026.
    """
    arms: dict[str, list[CollectedRun]] = {}
    for run in collected:
        if run.record.finished and study_phase(run.record) != "tune" and run.record.matching is None:
            arms.setdefault(arm_of(run), []).append(run)
    if not arms:
        raise RequestError(f"{folder} has no finished run; finish one with tielab resume {folder}")
    for name, runs in arms.items():
        keys = differing_keys(runs)
        if keys:
            raise RequestError(
                f"{folder}: its {name} runs differ in {', '.join(keys)}, and one setting is compared at a "
                "time; name two runs"
            )
    in_order = sorted(arms, key=lambda name: (not name.startswith("untied"), name))
    return {name: list({seeds_of(run.record): run for run in arms[name]}.values()) for name in in_order}


def _add_within(plan: Plan, arm: list[TokenRun]) -> None:
    """In with out, of one run and of two; and each matrix with itself of another seed."""
    name = arm[0].arm
    repeated = [pair for pair in combinations(arm, 2) if pair[0].initial_seed != pair[1].initial_seed]
    for end in arm[0].matrices:
        pairs = [(one.matrices[end], other.matrices[end]) for one, other in repeated]
        plan.repeated[Name(name, end)] = pairs
    if not repeated:
        plan.notes.append(f"no ceiling of {name}: train it with another seed")
    if INPUT in arm[0].matrices:
        kind = Kind(Name(name, INPUT), Name(name, OUTPUT), same_run=True)
        plan.compared[kind] = [(run.matrices[INPUT], run.matrices[OUTPUT]) for run in arm]
        _add(plan, arm, INPUT, arm, OUTPUT)


def _add(plan: Plan, arm: list[TokenRun], end: str, other_arm: list[TokenRun], other_end: str) -> None:
    pairs = _across(arm, end, other_arm, other_end)
    if pairs:
        first, second = Name(arm[0].arm, end), Name(other_arm[0].arm, other_end)
        plan.compared[Kind(first, second, same_run=False)] = pairs


def _across(arm: list[TokenRun], end: str, other_arm: list[TokenRun], other_end: str) -> Pairs:
    """A matrix of each run with one of each other run that began with other values."""
    return [
        (one.matrices[end], other.matrices[other_end])
        for one, other in product(arm, other_arm)
        if one.initial_seed != other.initial_seed
    ]
