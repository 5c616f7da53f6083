"""The articles of WikiText from its rows on the hub, which are lines. Imports no torch."""

import re
from collections.abc import Iterable, Iterator

HEADING = re.compile(r" = [^=].* = \n")
BLANK_LINE = " \n"
"""An empty line as WikiText's files have it; its rows on the hub are empty instead."""


def articles(rows: Iterable[str]) -> Iterator[str]:
    """The lines of WikiText as articles: joined, they are the published file, byte for byte.

    An article begins with a blank line and its title. Section headings have more equals signs; a
    formula that looks like a title has text above it.
    """
    lines: list[str] = []
    for row in rows:
        line = row or BLANK_LINE
        if HEADING.fullmatch(line) and len(lines) > 1 and lines[-1] == BLANK_LINE:
            yield "".join(lines[:-1])
            lines = lines[-1:]
        lines.append(line)
    if lines:
        yield "".join(lines)
