"""How numbers and verdicts read to a person; every human format uses the same words."""

import math
import re
from typing import Any

from tielab.report.pairing import PairedDifference

DIFFERENCE = "tied \N{MINUS SIGN} untied"
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
    """Signed, four decimals, more where four would show a difference as zero."""
    return f"{value:+.4f}" if value == 0 or abs(value) >= 0.00005 else f"{value:+.1e}"


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


def arm_name(tied: bool) -> str:
    return "tied" if tied else "untied"


def difference_sentence(difference: PairedDifference) -> str:
    """The difference with its unit, its interval or the lack of one, and what it shows."""
    start = (
        f"{DIFFERENCE} = {difference_text(difference.mean)} bits/byte, "
        f"{difference.perplexity_percent:+.1f} % perplexity"
    )
    if difference.low is None or difference.high is None:
        return f"{start} ({difference.verdict})"
    bounds = f"{difference_text(difference.low)} to {difference_text(difference.high)}"
    ending = difference.verdict
    if ending != "no difference shown":
        ending += f" by {difference_text(abs(difference.mean)).lstrip('+')} bits/byte"
    return f"{start} (95 % interval {bounds} bits/byte, {difference.num_pairs} seeds): {ending}"


def savings_sentence(tied: int, untied: int) -> str:
    """``tied saves 524,288 parameters (28 %)``."""
    return f"tied saves {count_text(untied - tied)} parameters ({(untied - tied) / untied:.0%})".replace(
        "%", " %"
    )


def one_line(text: str) -> str:
    """The text without terminal escapes, line breaks or other control characters."""
    plain = re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]", "", text)
    return "".join(letter if letter.isprintable() else " " for letter in plain).strip()
