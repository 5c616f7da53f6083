"""What commands share: folders they are given and files they write."""

from pathlib import Path

import click
from click.shell_completion import CompletionItem

from tielab.errors import RequestError
from tielab.record import RECORD_NAME, RUN_CONFIG_NAME, write_atomic

FOLDER = click.Path(path_type=Path)
RUN_MARKS = (RECORD_NAME, RUN_CONFIG_NAME)
SWEEP_MARKS = ("sweep.jsonl",)


class Outcome(click.Path):
    """A folder that training has made; TAB offers those below ``outputs``, newest first.

    Args:
        marks: names of files of which such a folder has one.
        patterns: where such folders are, below ``outputs``.
    """

    def __init__(self, marks: tuple[str, ...], patterns: tuple[str, ...]):
        super().__init__(path_type=Path)
        self._marks = marks
        self._patterns = patterns

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The folders that begin with what is typed; if there are none, any folder."""
        found = [folder for pattern in self._patterns for folder in Path("outputs").glob(pattern)]
        named = [str(folder) for folder in found if any((folder / mark).is_file() for mark in self._marks)]
        jobs_in_order = sorted(
            (name for name in named if name.startswith(incomplete)), key=lambda name: (len(name), name)
        )
        # The names below outputs/runs and outputs/sweeps begin with the time of the start.
        offered = sorted(jobs_in_order, key=lambda name: Path(name).parts[2], reverse=True)
        return [CompletionItem(name) for name in offered] or [CompletionItem(incomplete, type="dir")]


RUN = Outcome(RUN_MARKS, ("runs/*", "sweeps/*/*"))
SWEEP = Outcome(SWEEP_MARKS, ("sweeps/*",))
RUN_OR_SWEEP = Outcome((*RUN_MARKS, *SWEEP_MARKS), ("runs/*", "sweeps/*"))


def wrote_csv(text: str, file: Path) -> bool:
    """Write CSV to a file, or to standard output for ``-``; whether that was standard output."""
    if str(file) == "-":
        click.echo(text, nl=False)
        return True
    write_file(text, file)
    return False


def write_file(text: str, file: Path) -> None:
    try:
        write_atomic(file, text)
    except OSError as error:
        raise RequestError(f"cannot write {file}: {error.strerror}; name another file") from None
