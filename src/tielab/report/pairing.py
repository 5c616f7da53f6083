"""Whether two runs of one seed may be compared, and what the differences of such pairs show."""

import math
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from tielab.matching import MAX_MISMATCH
from tielab.record import Record
from tielab.report.statistics import (
    LEVEL,
    bootstrap_interval,
    minimum_detectable,
    sign_flip_test,
    t_interval,
    t_test,
)

MUST_MATCH = (
    "validation.content_hash",
    "validation.num_tokens",
    "data.corpus_hash",
    "data.tokenizer_hash",
    "body_hash",
    "init.files",
    "batch_hash",
    "tokens_seen",
    "num_steps",
    "num_processes",
    "config.trainer.precision",
    "config.data.eval_stride",
    "config.schedule",
)
CIRCUMSTANCES = {
    "commit": "the arms may have run different code",
    "dirty": "the arms may have run different code",
    "code_hash": "the arms may have run different code",
    "num_threads": "the arms may have been rounded differently",
    "device": "throughput and memory cannot be compared",
}
"""What two runs that may be compared should share, and what it means where they do not."""
TRAIN_FLOPS = "flops_per_token.train x tokens_seen"
MEETING = {"params": ("parameters.total",), "flops": ("parameters.total", TRAIN_FLOPS)}
"""What a size is solved for on an axis of matching; on the others sizes are as asked."""
EQUIVALENT = "equivalent within 0.5 % perplexity"
EQUIVALENT_NATS = 0.005
"""Per token; differences below half a percent of perplexity are none in practice."""

Pair = tuple[Record, Record]
"""The run of the arm and the run of its reference, of one seed."""


@dataclass(frozen=True)
class PairedDifference:
    """Arm minus reference in bits per byte, over pairs of one seed each."""

    num_pairs: int
    mean: float
    low: float | None
    """Bounds of the 95 % t interval; None for one pair."""
    high: float | None
    perplexity_percent: float
    """Mean over the pairs of how much the arm's perplexity is above the reference's."""
    sd: float | None = None
    """Over the pairs; None for one, as every number below that says how sure the mean is."""
    p_value: float | None = None
    """Paired t test, two-sided."""
    sign_flip_p: float | None = None
    """Two-sided, over all sign flips of the differences."""
    bootstrap_low: float | None = None
    """Bounds of the 95 % BCa interval of the mean, a check of the t interval; None where there is none."""
    bootstrap_high: float | None = None
    minimum_detectable: float | None = None
    """True difference that so many pairs of this spread show four times in five, with a p value below 0.05
    over ``num_cells``."""
    band: float = 0.0
    """Differences within plus and minus this are equivalence: half a percent of perplexity."""
    holm_p: float | None = None
    """``p_value`` adjusted for ``num_cells``."""
    num_cells: int = 1
    """Tests that were made together, this one among them."""
    values: tuple[tuple[str, float], ...] = ()
    """The label of each seed with its difference."""
    arm: str = "tied"
    reference: str = "untied"
    corrected: tuple[float, float] | None = None
    """Bounds of the t interval at 1 - 0.05 / ``num_cells``; None: those of the 95 % interval."""
    diverged: tuple[int, int] = (0, 0)
    """Seeds on which the arm and its reference came out as no number, so are in no pair."""
    num_seeds: tuple[int, int] = (0, 0)
    """Seeds on which the arm and its reference were trained to the end, the diverged ones among them."""
    unfair: str | None = None
    """Why the pairs can show nothing."""

    @property
    def divergence(self) -> str:
        """``tied diverged on 2 of 5 seeds``, for each arm that did; empty if none did."""
        counts = zip((self.arm, self.reference), self.diverged, self.num_seeds, strict=True)
        return ", ".join(
            f"{arm} diverged on {num} of {total} {'seed' if total == 1 else 'seeds'}"
            for arm, num, total in counts
            if num
        )

    @property
    def verdict(self) -> str:
        """What the interval shows; a difference is claimed only if it survives Holm's correction.

        Nothing is claimed in favour of the arm that diverged on more seeds: its other seeds are survivors.
        """
        if self.unfair is not None:
            return f"no claim: {self.unfair}"
        shown = self._shown()
        survivor = self.arm if self.diverged[0] > self.diverged[1] else self.reference
        if self.diverged[0] != self.diverged[1] and shown in (EQUIVALENT, f"{survivor} better"):
            return f"no claim: {self.divergence}"
        return shown

    def _shown(self) -> str:
        if self.low is None or self.high is None:
            return "one seed: no claim"
        low, high = self.corrected or (self.low, self.high)
        if -self.band < low and high < self.band:
            return EQUIVALENT
        if self.low <= 0 <= self.high:
            return "no difference shown"
        if self.holm_p is not None and self.holm_p >= LEVEL:
            return f"no difference shown after Holm correction over {self.num_cells} cells"
        return f"{self.arm if self.mean < 0 else self.reference} better"


def paired_difference(
    pairs: dict[str, Pair], arm: str = "tied", reference: str = "untied"
) -> PairedDifference:
    """What at least one pair shows.

    Args:
        pairs: by the label of their seed.
    """
    values = {seed: bits_per_byte(one) - bits_per_byte(other) for seed, (one, other) in pairs.items()}
    percents = [100 * (perplexity(one) / perplexity(other) - 1) for one, other in pairs.values()]
    differences = list(values.values())
    spread = _spread(differences) if len(pairs) > 1 else {"low": None, "high": None}
    return PairedDifference(
        num_pairs=len(pairs),
        mean=fmean(differences),
        perplexity_percent=fmean(percents),
        band=fmean(equivalence_band(one) for one, _ in pairs.values()),
        values=tuple(values.items()),
        arm=arm,
        reference=reference,
        **spread,
    )


def _spread(differences: list[float]) -> dict[str, Any]:
    low, high = t_interval(differences)
    p_value = t_test(differences)
    bootstrap = bootstrap_interval(differences) or (None, None)
    return {
        "low": low, "high": high, "sd": stdev(differences), "p_value": p_value, "holm_p": p_value,
        "sign_flip_p": sign_flip_test(differences), "bootstrap_low": bootstrap[0],
        "bootstrap_high": bootstrap[1], "minimum_detectable": minimum_detectable(differences),
    }  # fmt: skip


def equivalence_band(record: Record) -> float:
    """``EQUIVALENT_NATS`` per token as bits per byte of the text the run was validated on."""
    tokens_per_byte = lookup(record, "validation.num_tokens") / lookup(record, "validation.num_bytes")
    return float(EQUIVALENT_NATS * tokens_per_byte / math.log(2))


def bits_per_byte(record: Record) -> float:
    return float(lookup(record, "validation.bits_per_byte"))


def perplexity(record: Record) -> float:
    return float(lookup(record, "validation.perplexity"))


def refusals(one: Record, other: Record, arm: str = "tied", reference: str = "untied") -> list[str]:
    """Why two runs may not be compared, each reason with both values; empty if they may."""
    exempt = exemptions(one) | exemptions(other)
    differing = [
        _difference(one, other, name, arm, reference)
        for name in MUST_MATCH
        if name not in exempt and _differs(one, other, name)
    ]
    meeting = dict.fromkeys(name for record in (one, other) for name in _meeting(record))
    return differing + [
        f"{_difference(one, other, name, arm, reference)}: more than {100 * MAX_MISMATCH:.0f} % apart, "
        "so not matched"
        for name in meeting
        if are_apart(quantity(one, name), quantity(other, name))
    ]


def _meeting(record: Record) -> tuple[str, ...]:
    """The quantities that a solved run meets the other arm in; none of one that is as asked."""
    return MEETING.get(lookup(record, "matching.axis"), ())


def are_apart(one: float | None, other: float | None) -> bool:
    """Whether two sizes differ by more than matching allows, as a fraction of the larger one."""
    if one is None or other is None:
        return False
    return abs(one - other) > MAX_MISMATCH * max(one, other)


def quantity(record: Record, name: str) -> Any:
    """As ``lookup``, of the FLOPs of the whole training too; None where a factor is missing."""
    if name != TRAIN_FLOPS:
        return lookup(record, name)
    per_token = lookup(record, "flops_per_token.train")
    return None if per_token is None or record.tokens_seen is None else per_token * record.tokens_seen


def exemptions(record: Record) -> set[str]:
    """What differs lawfully because the run's size or length was solved to match another arm."""
    found = set()
    if any(key.startswith("model.") for key in lookup(record, "matching.solved") or {}):
        found.add("body_hash")
    if lookup(record, "matching.axis") in ("flops", "time"):
        found |= {"tokens_seen", "num_steps"}
    return found


def warnings(one: Record, other: Record, arm: str = "tied", reference: str = "untied") -> list[str]:
    """What differs between two runs that may be compared and still weakens the comparison."""
    found = [
        f"{_difference(one, other, name, arm, reference)}: {meaning}"
        for name, meaning in CIRCUMSTANCES.items()
        if _differs(one, other, name)
    ]
    packages = [f"versions.{name}" for name in dict.fromkeys([*one.versions, *other.versions])]
    differing = [
        _difference(one, other, name, arm, reference) for name in packages if _differs(one, other, name)
    ]
    return found + ([f"{'; '.join(differing)}: the arms ran with different libraries"] if differing else [])


def _differs(one: Record, other: Record, name: str) -> bool:
    return bool(lookup(one, name) != lookup(other, name))


def _difference(one: Record, other: Record, name: str, arm: str, reference: str) -> str:
    values = f"{arm} {_shortened(quantity(one, name))}, {reference} {_shortened(quantity(other, name))}"
    return f"{name} differs ({values})"


def lookup(record: Record, dotted: str) -> Any:
    """A record's field, or a key inside it; None where there is none."""
    value: Any = vars(record)
    for key in dotted.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _shortened(value: Any) -> str:
    text = "missing" if value is None else str(value)
    is_hash = len(text) > 16 and all(letter in "0123456789abcdef" for letter in text)
    return text[:12] if is_hash else text
