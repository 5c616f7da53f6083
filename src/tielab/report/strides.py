"""Whether a paired difference depends on the stride the models were evaluated at."""

import math
from dataclasses import dataclass
from statistics import fmean

from tielab.report.pairing import Pair, PairedDifference, lookup
from tielab.report.wording import difference_text, magnitude_text


@dataclass(frozen=True)
class StrideCheck:
    """The mean paired difference at every stride at which all pairs were scored."""

    means: dict[int, float]
    """In bits per byte; the run's own stride first, then the others, longest first."""
    band: float

    @property
    def largest_change(self) -> float:
        """From the run's own stride to another, in bits per byte."""
        own = next(iter(self.means.values()))
        return max(abs(mean - own) for mean in self.means.values())

    @property
    def stable(self) -> bool:
        """Whether no stride changes the difference by half a percent of perplexity."""
        return self.largest_change < self.band

    @property
    def sentence(self) -> str:
        means = ", ".join(f"{stride} {difference_text(mean)}" for stride, mean in self.means.items())
        change = f"by {magnitude_text(self.largest_change)} bits/byte at most"
        if self.stable:
            return f"paired difference at stride {means}: stable (changes {change}, under 0.5 % perplexity)"
        return (
            f"paired difference at stride {means}: changes with the stride ({change}, over 0.5 % perplexity)"
        )


def stride_check(difference: PairedDifference, pairs: dict[str, Pair]) -> StrideCheck | None:
    """The check over the strides that every run of the pairs was scored at; None if that is one."""
    records = [record for pair in pairs.values() for record in pair]
    own = lookup(records[0], "config.data.eval_stride")
    scored = [set(lookup(record, "stride_validations") or {}) for record in records]
    others = sorted((int(stride) for stride in set.intersection(*scored)), reverse=True)
    means = {stride: _mean_at(str(stride), pairs) for stride in others if stride != own}
    known = {stride: mean for stride, mean in means.items() if mean is not None}
    return StrideCheck({own: difference.mean} | known, difference.band) if known else None


def _mean_at(stride: str, pairs: dict[str, Pair]) -> float | None:
    """None if a pair was not scored on one text, or a score is no number."""
    changes = []
    for one, other in pairs.values():
        first, second = (lookup(record, "stride_validations")[stride] for record in (one, other))
        if first.get("content_hash") != second.get("content_hash"):
            return None
        changes.append(first["bits_per_byte"] - second["bits_per_byte"])
    mean = fmean(changes)
    return mean if math.isfinite(mean) else None
