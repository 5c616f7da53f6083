"""What a command says while it works."""

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def busy(doing: str) -> Iterator[None]:
    """Show on a terminal what is being done and for how long; print nothing in a pipe.

    On standard error; nothing else may be printed meanwhile.
    """
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(doing, total=None)
        yield
