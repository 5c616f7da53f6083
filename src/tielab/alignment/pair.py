"""``tielab align RUN RUN``: every token matrix of one run with every one of another."""

from pathlib import Path

from tielab.alignment.matrices import INPUT, OUTPUT, TokenRun, check_same_ends, load_token_runs
from tielab.alignment.results import Kind, Name, Plan, Results, rows_of
from tielab.alignment.runs import (
    description,
    differences,
    finished_run,
    initial_seed,
    repeats,
    repetitions_beside,
)
from tielab.errors import RequestError
from tielab.report.collect import CollectedRun


def align_pair(
    first: Path, second: Path, ceilings: tuple[Path, ...], checkpoint: str, min_count: int
) -> Results:
    """Compare two runs, or the two matrices of one run that is named twice.

    Args:
        ceilings: runs that repeat one of the two with another seed; none: those found beside them.

    Raises:
        RequestError: a folder is not a finished run with such a checkpoint, the runs have other tokenizers,
            a ceiling repeats neither run, or a run named twice has only one matrix.
    """
    within = first.resolve() == second.resolve()
    pair = [finished_run(folder) for folder in ([first] if within else [first, second])]
    repetitions = [_repetitions(run, pair, ceilings) for run in pair]
    _check_all_used(ceilings, repetitions)
    loaded = load_token_runs([*pair, *repetitions[0], *repetitions[-1]], checkpoint, min_count)
    tokens = [loaded.runs[run.folder] for run in pair]
    plan = Plan(warnings=_shared_beginning(pair), notes=differences(pair))
    whiches = _whiches(tokens)
    if within:
        _add_ends(plan, tokens[0])
    else:
        _add_pair(plan, tokens, whiches)
    for run, which, found in zip(tokens, whiches, repetitions, strict=True):
        _add_repeated(plan, run, which, [loaded.runs[one.folder] for one in found])
    described = [description(run) for run in pair]
    return Results(
        described, checkpoint, min_count, loaded.num_rows, loaded.vocab_size, rows_of(plan), plan.warnings,
        plan.notes,
    )  # fmt: skip


def _repetitions(
    run: CollectedRun, pair: list[CollectedRun], ceilings: tuple[Path, ...]
) -> list[CollectedRun]:
    """What repeats a run, apart from the pair itself, whose likeness is the question."""
    compared = {one.folder.resolve() for one in pair}
    found = [finished_run(folder) for folder in ceilings] if ceilings else repetitions_beside(run)
    return [one for one in found if one.folder.resolve() not in compared and repeats(run.record, one.record)]


def _check_all_used(ceilings: tuple[Path, ...], repetitions: list[list[CollectedRun]]) -> None:
    used = {run.folder for runs in repetitions for run in runs}
    for folder in ceilings:
        if folder not in used:
            raise RequestError(
                f"--ceiling {folder} repeats none of the runs compared: it must differ from one of them in "
                "the seed alone; name another"
            )


def _shared_beginning(pair: list[CollectedRun]) -> list[str]:
    seeds = {initial_seed(run.record) for run in pair}
    if len(pair) == 1 or len(seeds) > 1:
        return []
    one, other = pair
    beside = next((run.folder for run in repetitions_beside(other)), "RUN_OF_ANOTHER_SEED")
    return [
        f"both runs have model.seed={seeds.pop()}: matrices that began with the same values are alike from "
        "memory, above all a tied one and an untied in; compare runs of two seeds: "
        f"tielab align {one.folder} {beside}"
    ]


def _whiches(runs: list[TokenRun]) -> list[str]:
    """What tells two runs of one arm apart: the seed if it does, else the folder."""
    if len({run.arm for run in runs}) == len(runs):
        return [""] * len(runs)
    if len({run.initial_seed for run in runs}) == len(runs):
        return [f"seed {run.initial_seed}" for run in runs]
    return [str(run.folder) for run in runs]


def _add_ends(plan: Plan, run: TokenRun) -> None:
    if len(run.matrices) == 1:
        raise RequestError(
            f"{run.folder} has one matrix at both ends, nothing to compare it with; name a second run"
        )
    kind = Kind(Name(run.arm, INPUT), Name(run.arm, OUTPUT), same_run=True)
    plan.compared[kind] = [(run.matrices[INPUT], run.matrices[OUTPUT])]


def _add_pair(plan: Plan, runs: list[TokenRun], whiches: list[str]) -> None:
    one, other = runs
    for end, matrix in one.matrices.items():
        for other_end, other_matrix in other.matrices.items():
            first, second = Name(one.arm, end, whiches[0]), Name(other.arm, other_end, whiches[1])
            plan.compared[Kind(first, second, same_run=False)] = [(matrix, other_matrix)]


def _add_repeated(plan: Plan, run: TokenRun, which: str, repetitions: list[TokenRun]) -> None:
    check_same_ends([run, *repetitions])
    for end, matrix in run.matrices.items():
        pairs = [(matrix, one.matrices[end]) for one in repetitions]
        plan.repeated[Name(run.arm, end, which)] = pairs
    name = Name(run.arm, "", which)
    if repetitions:
        found = ", ".join(f"{one.folder.name} (seed {one.initial_seed})" for one in repetitions)
        plan.notes.append(f"ceiling of {name}: the same arm with another seed, {found}")
    else:
        plan.notes.append(
            f"no ceiling of {name}: give --ceiling RUN, a run of the same arm with another seed"
        )
