"""The corpora that ``conf/data`` offers, what its files say about each, and the config of one of them.

Imports no torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

import tielab
from tielab.config import plain, register
from tielab.errors import RequestError
from tielab.explain import explain

LICENCE = "Licence:"


@dataclass(frozen=True)
class Corpus:
    """An option of ``data=``."""

    name: str
    about: list[str]
    """The comment above its config, without the licence; the first line says what it is."""
    licence: str | None


def config_folder() -> Path:
    """The folder ``conf`` of a checkout: in this folder, or the one this package was installed from.

    Raises:
        RequestError: there is none.
    """
    checkout = Path(tielab.__file__).resolve().parents[2]
    found = next((root / "conf" for root in (Path.cwd(), checkout) if (root / "conf/data").is_dir()), None)
    if found is None:
        raise RequestError("no conf/data here, which names the corpora; change to a checkout of tielab")
    return found


def corpora() -> list[Corpus]:
    """Every option of ``data=`` by name."""
    files = sorted((config_folder() / "data").glob("*.yaml"))
    return [_read(path) for path in files if not path.name.startswith("_")]


def find_corpus(name: str) -> Corpus:
    """One option of ``data=``.

    Raises:
        RequestError: there is none of this name.
    """
    found = {corpus.name: corpus for corpus in corpora()}
    if name not in found:
        raise RequestError(f"no corpus {name}; there are {', '.join(found)}")
    return found[name]


def _read(path: Path) -> Corpus:
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").removeprefix(" "))
    licence = next((line for line in lines if line.startswith(LICENCE)), None)
    about = [line for line in lines if line is not licence]
    return Corpus(path.stem, about, None if licence is None else licence.removeprefix(LICENCE).strip(" ."))


def config_with(name: str, vocabulary: str, overrides: Sequence[str]) -> dict[str, Any]:
    """The config of a run on a corpus; nothing is checked.

    Args:
        vocabulary: an option of ``vocab=``, or ``bpeN`` for any number of ids N.
        overrides: further ones, as for ``train.py``.

    Raises:
        RequestError: Hydra cannot compose it.
    """
    folder = config_folder()
    register()
    asked = [f"data={name}", *_vocabulary(vocabulary, folder), *overrides]
    try:
        with initialize_config_dir(str(folder), version_base="1.3"):
            return plain(compose("config", overrides=asked))
    except (HydraException, OmegaConfBaseException, OSError, ValueError, AssertionError) as error:
        reason = explain(error)
        if reason is None:
            raise
        raise RequestError(reason) from None


def _vocabulary(name: str, folder: Path) -> list[str]:
    size = name.removeprefix("bpe")
    if not (folder / "vocab" / f"{name}.yaml").is_file() and name != size and size.isdecimal():
        return ["vocab=bpe", f"data.tokenizer.vocab_size={size}"]
    return [f"vocab={name}"]


def is_here(name: str) -> bool | None:
    """Whether the text of a corpus can be read without network; null where that depends on more keys."""
    from tielab.checks import check_config
    from tielab.data.corpus import find_source

    try:
        config = config_with(name, "byte", [])
        check_config(config)
        return find_source(config["data"]).is_here()
    except RequestError:
        return None
