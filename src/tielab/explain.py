"""Hydra's and OmegaConf's errors as one line that says what to do."""

import errno
import re
import traceback

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from tielab.config import GROUPS, known_keys, suggest, suggest_key
from tielab.errors import RequestError


def explain(error: BaseException) -> str | None:
    """One line for an error in the request, None for anything else (a fault of ours)."""
    if isinstance(error, RequestError):
        return _one_line(str(error))
    if isinstance(error, MissingConfigException):  # an OSError as well
        return _explain_missing_option(str(error))
    if isinstance(error, FileNotFoundError) and traceback.extract_tb(error.__traceback__)[-1].name == "mkdir":
        return _one_line(f"cannot make the folder {error.filename}; choose another output_dir")
    if isinstance(error, OSError):
        return _explain_os_error(error)
    if isinstance(error, OverrideParseException):
        return _one_line(
            f"cannot read {error.override}: {str(error).splitlines()[0]}; if it has special characters, "
            "quote the value for Hydra too, as in \"KEY='VALUE'\""
        )
    if isinstance(error, HydraException | OmegaConfBaseException):
        return _explain_config(error)
    if isinstance(error, AssertionError) and "type for root: NoneType" in str(error):
        return "a key below data.url or data.hub needs data=url or data=hub; add it or drop the key"
    if isinstance(error, ValueError) and str(error).startswith("Config group override"):
        return "the options of a config group are names, found a number; see python train.py --help"
    return None


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _explain_os_error(error: OSError) -> str | None:
    remedies = {
        errno.ENOSPC: "free some space",
        errno.EDQUOT: "free some space",
        errno.EACCES: "choose another output_dir",
        errno.EPERM: "choose another output_dir",
        errno.EROFS: "choose another output_dir",
        errno.ENOTDIR: "choose another output_dir",
        errno.EEXIST: "choose another output_dir",
    }
    if error.errno not in remedies:
        return None
    where = error.filename2 or error.filename or "to the disk"
    return _one_line(f"cannot write {where}: {error.strerror}; {remedies[error.errno]}")


def _explain_missing_option(text: str) -> str:
    found = re.search(r"Could not find '([^']+)'", text)
    options = re.search(r"Available options in '([^']+)':(.*)", text, flags=re.DOTALL)
    if found is None or options is None:
        return _one_line(text.split("Config search path")[0])
    group, _, name = found[1].rpartition("/")
    names = [
        option
        for option in options[2].partition("Config search path")[0].split()
        if not option.startswith("_")
    ]
    return f"{group}={name} is not an option{suggest(name, names)}; choose from {', '.join(names)}"


def _explain_config(error: BaseException) -> str:
    cause = error.__cause__ or error
    text = str(cause) if isinstance(cause, OmegaConfBaseException | HydraException) else str(error)
    key = re.search(r"full_key: (\S+)", text)
    first = text.strip().splitlines()[0].rstrip(".")
    outer = re.search(r"Could not override '([^']+)'", str(error))
    unknown = re.search(r"Key '([^']+)' (is )?not in ", first)
    if unknown is not None:
        full = key[1] if key is not None else outer[1] if outer is not None else unknown[1]
        return _explain_unknown(full)
    if "Could not override" in first and outer is not None:
        return _explain_unknown(outer[1])
    if "is not a ListConfig" in first and key is not None:
        return f"{key[1]} is a list: write {key[1]}=[...]"
    if "is not Optional" in first and key is not None:
        return f"{key[1]} must have a value, found null"
    if first.startswith("Ambiguous value"):
        return f"{first}; add -m to sweep it, or quote it as in \"KEY='A,B'\""
    if "Missing mandatory value" in first:
        name = first.rpartition(": ")[2]
        # Of a section that may be null, the error names the last part alone.
        name = key[1] if key is not None and "." not in name else name
        return f"{name} has no value: add {name}=..."
    if key is not None and key[1] not in first:
        return f"{key[1]}: {first}"
    return _one_line(first)


def _explain_unknown(key: str) -> str:
    if key in known_keys() or key in GROUPS:
        return f"{key} is a group that cannot be chosen here; set its keys or delete them (~{key}.NAME)"
    return f"unknown key {key}{suggest_key(key)}; see python train.py --cfg job"
