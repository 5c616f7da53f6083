"""One sentence for each comparison of two arms."""

from tielab.report.arms import TIED, UNTIED
from tielab.report.groups import Group
from tielab.report.pairing import TRAIN_FLOPS, Pair, quantity
from tielab.report.strides import stride_check
from tielab.report.wording import (
    difference_sentence,
    equal_flops_text,
    equal_parameters_text,
    labelled,
    savings_sentence,
)


def group_verdicts(groups: list[Group]) -> list[str]:
    """A line for each arm that is compared in a setting or was lost, or one that says why none is."""
    waiting: dict[str, list[str]] = {}
    for group in groups:
        for arm, reference in group.references.items():
            waiting.setdefault(reference, []).append(arm)
    return [
        labelled(group.values, line)
        for group in groups
        for line in [*(_compared(group) or [_nothing_compared(group, waiting)]), *_lost(group)]
    ]


def _lost(group: Group) -> list[str]:
    """A line for each arm of which every run diverged."""
    return [
        f"{arm} diverged on {len(runs)} of {len(runs)} {'seed' if len(runs) == 1 else 'seeds'}"
        for arm, runs in group.diverged.items()
        if arm not in group.arms
    ]


def _compared(group: Group) -> list[str]:
    return [_verdict(group, arm) for arm in group.references if len(group.arms) > 1]


def _nothing_compared(group: Group, waiting: dict[str, list[str]]) -> str:
    arms = list(group.arms)
    if group.axis.is_solved and not any(arm.split(",")[0] == group.axis.adjusted for arm in arms):
        return f"no finished {group.axis.adjusted} run, so no comparison"
    if len(arms) > 1:
        return f"no arm among {'; '.join(arms)} is the reference of another: name one with --baseline"
    awaited = dict.fromkeys(waiting.get(arms[0], [UNTIED if arms[0].split(",")[0] == TIED else TIED]))
    missing = group.references.get(arms[0]) or (next(iter(awaited)) if len(awaited) == 1 else "other")
    return f"no finished {missing} run, so no comparison"


def _verdict(group: Group, arm: str) -> str:
    reference = group.references[arm]
    if reference not in group.arms:
        meeting = f" that meets matching {group.axis.name}" if group.axis.is_solved else ""
        return f"{arm}: no finished {reference} run{meeting}, so no comparison"
    if arm not in group.differences:
        start = f"{arm} and {reference}: " if len(group.references) > 1 else ""
        return f"{start}no pair of runs may be compared, the notes say why"
    found = group.differences[arm]
    parts = [difference_sentence(found.difference)]
    strides = stride_check(found.difference, found.pairs)
    if strides is not None and not strides.stable:
        parts.append("the difference changes with the evaluation stride, the notes say how")
    ours, theirs = group.parameters(arm), group.parameters(reference)
    if ours is not None and theirs and group.axis.meets_parameters:
        parts.append(equal_parameters_text(ours, theirs))
        if group.axis.kind == "flops":
            parts += _equal_flops(next(iter(found.pairs.values())))
    elif ours is not None and theirs and ours != theirs:
        parts.append(savings_sentence(arm, ours, theirs))
    return "; ".join(parts)


def _equal_flops(pair: Pair) -> list[str]:
    """What the two runs spent; nothing where a record does not say."""
    (ours, our_tokens), (theirs, their_tokens) = (
        (quantity(record, TRAIN_FLOPS), record.tokens_seen) for record in pair
    )
    if None in (ours, theirs, our_tokens, their_tokens):
        return []
    return [equal_flops_text(ours, theirs, our_tokens or 0, their_tokens or 0)]
