"""Which code this is: the commit of its checkout, and a hash of the source files that also works without."""

import functools
import hashlib
import subprocess
from pathlib import Path


@functools.cache
def code_hash() -> str:
    """16 hex digits over the names and contents of this package's source files."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@functools.cache
def code_version() -> tuple[str | None, bool | None]:
    """Commit of the checkout of this package, and whether it has uncommitted changes; None outside git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # else it is somebody else's repository
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain"))
    except (OSError, subprocess.CalledProcessError):
        return None, None
