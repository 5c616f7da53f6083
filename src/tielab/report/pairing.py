"""Whether a tied and an untied run may be compared, and what their differences show."""

import math
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from tielab.record import Record

MUST_MATCH = (
    "validation.content_hash",
    "validation.num_tokens",
    "data.corpus_hash",
    "data.tokenizer_hash",
    "body_hash",
    "batch_hash",
    "tokens_seen",
    "num_processes",
    "config.trainer.precision",
)
CODE_FIELDS = ("commit", "dirty")


@dataclass(frozen=True)
class PairedDifference:
    """Tied minus untied in bits per byte, over pairs of one seed each."""

    num_pairs: int
    mean: float
    low: float | None
    """Bounds of the 95 % t interval; None for one pair."""
    high: float | None
    perplexity_percent: float
    """Mean over the pairs of how much the tied perplexity is above the untied one."""

    @property
    def verdict(self) -> str:
        if self.low is None or self.high is None:
            return "one seed: no claim"
        if self.low <= 0 <= self.high:
            return "no difference shown"
        return "tied better" if self.mean < 0 else "untied better"


def paired_difference(pairs: list[tuple[Record, Record]]) -> PairedDifference:
    """The mean difference of at least one (tied, untied) pair, with its 95 % t interval."""
    differences = [bits_per_byte(tied) - bits_per_byte(untied) for tied, untied in pairs]
    percents = [100 * (perplexity(tied) / perplexity(untied) - 1) for tied, untied in pairs]
    mean = fmean(differences)
    low, high = t_interval(differences) if len(pairs) > 1 else (None, None)
    return PairedDifference(len(pairs), mean, low, high, fmean(percents))


def t_interval(values: list[float]) -> tuple[float, float]:
    """The 95 % interval of the mean of at least two values, by Student's t; a point for equal ones."""
    # scipy.stats has the same quantile but takes a second to import.
    from scipy.special import stdtrit

    mean = fmean(values)
    margin = float(stdtrit(len(values) - 1, 0.975)) * stdev(values) / math.sqrt(len(values))
    return mean - margin, mean + margin


def bits_per_byte(record: Record) -> float:
    return float(lookup(record, "validation.bits_per_byte"))


def perplexity(record: Record) -> float:
    return float(lookup(record, "validation.perplexity"))


def refusals(tied: Record, untied: Record) -> list[str]:
    """Why the two runs may not be compared, each reason with both values; empty if they may."""
    return [_difference(tied, untied, name) for name in MUST_MATCH if _differs(tied, untied, name)]


def warnings(tied: Record, untied: Record) -> list[str]:
    """What differs between two runs that may be compared and still weakens the comparison."""
    found = [
        f"{_difference(tied, untied, name)}: the arms may have run different code"
        for name in CODE_FIELDS
        if _differs(tied, untied, name)
    ]
    if _differs(tied, untied, "device"):
        found.append(f"{_difference(tied, untied, 'device')}: throughput and memory cannot be compared")
    return found


def _differs(tied: Record, untied: Record, name: str) -> bool:
    return bool(lookup(tied, name) != lookup(untied, name))


def _difference(tied: Record, untied: Record, name: str) -> str:
    values = f"tied {_shortened(lookup(tied, name))}, untied {_shortened(lookup(untied, name))}"
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
