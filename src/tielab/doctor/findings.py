"""What a check of this machine finds, and how all of them are run and told."""

import textwrap
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import click

from tielab.errors import printable

OK, WARN, FAIL = "ok", "warn", "fail"
COLOURS = {OK: "green", WARN: "yellow", FAIL: "red"}


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    name: str
    level: str
    """``ok``; ``warn``: it works, but; ``fail``: training or looking at results does not work so."""
    found: str
    remedy: str = ""
    """What to do; always there if it is not ok."""


Check = Callable[[], Iterable[Finding]]


def examine(checks: dict[str, Check]) -> list[Finding]:
    """Everything the checks find; one that breaks is a finding itself and keeps none of the others back."""
    findings: list[Finding] = []
    for name, check in checks.items():
        try:
            for finding in check():
                findings.append(finding)
        except Exception as error:  # of a broken installation anything may come
            what = " ".join(f"{type(error).__name__}: {error}".split())
            findings.append(
                Finding(name, FAIL, f"cannot be checked: {what}", "repair what it names, or report it")
            )
    return findings


def is_healthy(findings: list[Finding]) -> bool:
    return all(finding.level != FAIL for finding in findings)


def to_text(findings: list[Finding], width: int | None) -> str:
    """A line for each finding, with what to do below it, and a summary.

    Args:
        width: of the terminal; None: a pipe, where nothing is folded or coloured.
    """
    margin = max(len(finding.name) for finding in findings) + 8
    lines = []
    for finding in findings:
        level = f"{finding.level:<4}"
        start = level if width is None else click.style(level, fg=COLOURS[finding.level], bold=True)
        found, *rest = _folded(printable(finding.found), width, margin)
        lines.append(f"{start}  {finding.name:<{margin - 8}}  {found}")
        lines += [" " * margin + line for line in rest]
        if finding.remedy:
            remedies = _folded(f"-> {printable(finding.remedy)}", width, margin)
            lines += [" " * margin + line for line in remedies]
    counts = {level: sum(finding.level == level for finding in findings) for level in (FAIL, WARN)}
    if counts[FAIL]:
        lines.append(f"\n{counts[FAIL]} to repair, {counts[WARN]} to look at")
    else:
        lines.append(f"\nready to train; {counts[WARN] or 'nothing'} to look at")
    return "\n".join(lines) + "\n"


def _folded(text: str, width: int | None, margin: int) -> list[str]:
    if width is None:
        return [text]
    room = max(width - margin, 20)
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]


def as_json(findings: list[Finding]) -> dict[str, Any]:
    return {"ok": is_healthy(findings), "checks": [asdict(finding) for finding in findings]}
