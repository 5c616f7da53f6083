"""A file from the web, pinned by its hash, kept beside the token cache. Imports no torch."""

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote, urlsplit

from tielab.data.formats import CHUNK, format_of
from tielab.data.progress import followed
from tielab.errors import RequestError
from tielab.record import written_whole
from tielab.slots import alone

FOLDER_NAME = "downloads"
TIMEOUT_SECONDS = 60.0
"""Without a byte."""


def downloaded(address: str, sha256: str, cache_dir: Path) -> Path:
    """The file at an address, downloaded if it is not there yet; its bytes have been compared with the hash.

    Raises:
        RequestError: it cannot be had, or is another file.
    """
    path = place_of(address, sha256, cache_dir)
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone(path.with_name(f"{path.name}.lock")):
        for left in path.parent.glob(f".{path.name}.*"):  # by a process that was killed
            left.unlink()
        if path.is_file() and _hash_of(path) == sha256:
            return path
        # Nothing takes the name of a hash before it has that hash.
        with written_whole(path) as file:
            digest = hashlib.sha256()
            for chunk in _received(address):
                file.write(chunk)
                digest.update(chunk)
            found = digest.hexdigest()
            if found != sha256:
                raise RequestError(
                    f"data.url.sha256={sha256} but {address} has sha256 {found}: it is another file; "
                    f"find out why, and set data.url.sha256={found} if it is the one you mean"
                )
    return path


def place_of(address: str, sha256: str, cache_dir: Path) -> Path:
    """Where a downloaded file is kept; its suffix says what it is read as."""
    return cache_dir / FOLDER_NAME / f"{sha256}.{format_at(address)}"


def format_at(address: str) -> str:
    """What the file at an address is read as: such as ``text`` or ``jsonl.zst``."""
    return format_of(Path(unquote(urlsplit(address).path)))


def refuse_unpinned(address: str) -> None:
    """Raise RequestError with the hash that the file at an address has now; nothing is kept of it."""
    digest, size = hashlib.sha256(), 0
    for chunk in _received(address):
        digest.update(chunk)
        size += len(chunk)
    raise RequestError(
        f"data.url.sha256 is not set: {address} has {size} bytes with sha256 {digest.hexdigest()}; "
        f"if that is the file you mean, add data.url.sha256={digest.hexdigest()}"
    )


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _opener() -> urllib.request.OpenerDirector:
    """http and https alone, also behind a redirect: build_opener's would follow one to ftp."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.UnknownHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
    ):
        opener.add_handler(handler())
    opener.addheaders = [("User-Agent", "tielab")]
    return opener


def _received(address: str) -> Iterator[bytes]:
    """The bytes at an address.

    Raises:
        RequestError: it does not answer, answers with an error, or ends early.
    """
    num_bytes, expected = 0, None

    def chunks() -> Iterator[bytes]:
        nonlocal num_bytes, expected
        with _opener().open(address, timeout=TIMEOUT_SECONDS) as response:
            length = response.headers.get("Content-Length")
            expected = int(length) if length else None
            while chunk := response.read(CHUNK):
                num_bytes += len(chunk)
                yield chunk

    try:
        yield from followed(chunks(), f"downloading {address}", lambda: num_bytes, lambda: expected)
    except (ValueError, http.client.InvalidURL) as error:  # spaces in it, a Content-Length that is no number
        _refuse(address, f"cannot be asked for ({error})", "check the address")
    except urllib.error.HTTPError as error:
        _refuse(address, f"answered {error.code} {error.reason}", "check the address")
    except urllib.error.URLError as error:
        _refuse(address, f"cannot be reached ({error.reason})", "check the address and the network")
    except TimeoutError:
        _refuse(address, f"sent nothing for {TIMEOUT_SECONDS:g} seconds", "try again")
    except (OSError, http.client.HTTPException) as error:
        _refuse(address, f"broke off after {num_bytes} bytes ({type(error).__name__})", "try again")
    if expected is not None and num_bytes < expected:
        _refuse(address, f"ended after {num_bytes} of {expected} bytes", "try again")


def _refuse(address: str, found: str, remedy: str) -> NoReturn:
    raise RequestError(f"data.url.address={address} {found}; {remedy}") from None
