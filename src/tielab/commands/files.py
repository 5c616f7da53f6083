"""What commands share: folders they are given and files they write."""

from pathlib import Path

import click

from tielab.errors import RequestError
from tielab.record import write_atomic

FOLDER = click.Path(path_type=Path)


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
