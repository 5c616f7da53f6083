"""How numbers and verdicts read to a person; every human format uses the same words."""

import math
import re
from typing import Any

from tielab.report.pairing import EQUIVALENT, PairedDifference
from tielab.report.statistics import LEVEL

MINUS = "\N{MINUS SIGN}"
MIB = 1024 * 1024


def perplexity_text(mean: float, sd: float | None = None) -> str:
    """About four significant digits, ``123.4 ± 1.2``."""
    decimals = 3 if mean < 10 else 2 if mean < 100 else 1 if mean < 10_000 else 0
    return _with_sd(mean, sd, decimals)


def bits_text(mean: float, sd: float | None = None) -> str:
    """Four decimals, ``1.2345 ± 0.0021``."""
    return _with_sd(mean, sd, 4)


def _with_sd(mean: float, sd: float | None, decimals: int) -> str:
    text = f"{mean:,.{decimals}f}"
    return text if sd is None or math.isnan(sd) else f"{text} ± {sd:,.{decimals}f}"


def difference_text(value: float) -> str:
    """Signed, four decimals; where four would show a difference as zero, its first two digits."""
    if value == 0 or not 5e-8 <= abs(value) < 0.00005:
        return f"{value:+.4f}" if value == 0 or abs(value) >= 0.00005 else f"{value:+.0e}"
    return f"{value:+.{1 - math.floor(math.log10(abs(value)))}f}"


def magnitude_text(value: float) -> str:
    """As ``difference_text`` of a number that has no sign."""
    return difference_text(abs(value)).lstrip("+")


def count_text(value: float | int) -> str:
    """A whole number with thousands separators."""
    return f"{value:,.0f}"


def mebibytes_text(num_bytes: int) -> str:
    """Bytes as whole MiB."""
    return count_text(num_bytes / MIB)


def label(values: dict[str, Any]) -> str:
    """``vocab_size 4096, embed_dim 128``; empty if nothing varies."""
    return ", ".join(f"{name} {'none' if value is None else value}" for name, value in values.items())


def labelled(values: dict[str, Any], text: str) -> str:
    """The text, after the label if there is one."""
    return f"{label(values)}: {text}" if values else text


def difference_name(difference: PairedDifference) -> str:
    """``tied - untied``."""
    return two_arms(difference.arm, difference.reference)


def two_arms(arm: str, reference: str) -> str:
    """What is subtracted from what."""
    return f"{bracketed(arm)} {MINUS} {bracketed(reference)}"


def bracketed(arm: str) -> str:
    """An arm's name inside a sentence, in brackets if it has a comma."""
    return f"({arm})" if "," in arm else arm


def p_text(p_value: float) -> str:
    """Two digits, three where it is small; never zero."""
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}" if p_value < 0.1 else f"{p_value:.2f}"


def difference_sentence(difference: PairedDifference) -> str:
    """The difference with its unit, its interval or the lack of one, and what it shows.

    How often an arm diverged stands behind what the other seeds show.
    """
    sentence = _difference_sentence(difference)
    told = not difference.divergence or difference.divergence in sentence
    return sentence if told else f"{sentence}; {difference.divergence}"


def _difference_sentence(difference: PairedDifference) -> str:
    start = (
        f"{difference_name(difference)} = {difference_text(difference.mean)} bits/byte, "
        f"{difference.perplexity_percent:+.1f} % perplexity"
    )
    if difference.low is None or difference.high is None:
        return f"{start} ({difference.verdict})"
    bounds = f"{difference_text(difference.low)} to {difference_text(difference.high)}"
    how_sure = f"95 % interval {bounds} bits/byte, {difference.num_pairs} seeds, {_significance(difference)}"
    return f"{start} ({how_sure}): {_conclusion(difference)}"


def _significance(difference: PairedDifference) -> str:
    p_value = difference.holm_p if difference.holm_p is not None else difference.p_value
    assert p_value is not None
    text = f"p = {p_text(p_value)}".replace("= <", "< ")
    return f"{text} after Holm over {difference.num_cells} cells" if difference.num_cells > 1 else text


def _conclusion(difference: PairedDifference) -> str:
    if difference.verdict.endswith("better"):
        return f"{difference.verdict} by {magnitude_text(difference.mean)} bits/byte"
    if difference.verdict == "no difference shown" and difference.minimum_detectable is not None:
        found = magnitude_text(difference.minimum_detectable)
        return (
            f"{difference.verdict}; {found} bits/byte would have been detected with 80 % power"
            f"{first_step(difference.num_cells)}"
        )
    if difference.verdict == EQUIVALENT and difference.num_cells > 1:
        percent = 100 * (1 - LEVEL / difference.num_cells)
        return f"{difference.verdict}, by the {percent:.4g} % interval"
    return difference.verdict


def first_step(num_cells: int) -> str:
    """The level of a test among several at Holm's first step; empty for a single one."""
    return f" at p < {LEVEL:g}/{num_cells}" if num_cells > 1 else ""


def savings_sentence(arm: str, ours: int, theirs: int) -> str:
    """``tied saves 524,288 parameters (28 %)``, or ``adds`` where it has more than its reference."""
    change = count_text(abs(theirs - ours))
    share = f"{abs(theirs - ours) / theirs:.0%}".replace("%", " %")
    return f"{bracketed(arm)} {'saves' if ours < theirs else 'adds'} {change} parameters ({share})"


def equal_parameters_text(ours: int, theirs: int) -> str:
    """``at equal parameters (+2.7 %)``, of two arms of which one was solved to meet the other."""
    share = f"{ours / theirs - 1:+.1%}".replace("%", " %")
    return f"at equal parameters ({share})"


def equal_flops_text(our_flops: int, their_flops: int, our_tokens: int, their_tokens: int) -> str:
    """``at equal training FLOPs (-0.3 %), with 5,760 tokens against 8,192``."""
    share = f"{our_flops / their_flops - 1:+.1%}".replace("%", " %")
    return (
        f"at equal training FLOPs ({share}), with {count_text(our_tokens)} tokens against "
        f"{count_text(their_tokens)}"
    )


def seed_range(seeds: list[str]) -> str:
    """``seed 0``, ``seeds 100, 101`` or ``seeds 0-4``."""
    numbers = sorted(int(seed) for seed in seeds if seed.isdecimal())
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if len(numbers) == len(seeds) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"seeds {numbers[0]}-{numbers[-1]}"
    return f"seeds {', '.join(seeds)}"


def one_line(text: str) -> str:
    """The text without terminal escapes, line breaks or other control characters."""
    plain = re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]", "", text)
    return "".join(letter if letter.isprintable() else " " for letter in plain).strip()
