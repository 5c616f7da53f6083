"""What TAB offers after ``python train.py``: Hydra's own choices, and the values that a key can have."""

import os
import re
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from hydra.plugins.completion_plugin import CompletionPlugin

from tielab.schema import Config

WORDS = re.compile(r"(?:[^\s'\"\\]|\\.|'[^']*'|\"[^\"]*\"|['\"\\])+|(?<=\s)$|^$")
"""Of a shell's line; the last is empty after a space."""
FLAGS = ("-m", "--multirun", "--cfg", "--help", "--config-dir", "--config-name")
"""Of Hydra's own, those that are of use here."""


class TielabCompletion(CompletionPlugin):
    """``train.py -sc query=tielab``: one choice a line, for the last word of ``COMP_LINE``.

    A word is completed as a whole; in a list of values the last one is.
    """

    def install(self) -> None:
        print("# tielab completion bash|zsh|fish")

    def uninstall(self) -> None:
        print("# begin a new shell without tielab completion")

    @staticmethod
    def provides() -> str:
        return "tielab"

    def query(self, config_name: str | None) -> None:
        line = self.strip_python_or_app_name(os.environ["COMP_LINE"])
        print("\n".join(self.choices(config_name, without_quoted(line))))

    def choices(self, config_name: str | None, line: str) -> list[str]:
        """What the last word of a command line may become."""
        word = "" if line.endswith(" ") else (line.split() or [""])[-1]
        if word.startswith("-"):
            return [flag for flag in FLAGS if flag.startswith(word)]
        key, equals, value = word.partition("=")
        before, comma, last = value.rpartition(",")
        values = values_of(key.lstrip("+")) if equals else []
        if values:
            chosen = before.split(",")
            return [f"{key}={before}{comma}{v}" for v in values if v.startswith(last) and v not in chosen]
        if not comma:
            return self._query(config_name, line)
        # Hydra completes one option of a group; here another one after those that are there.
        options = self._query(config_name, line.removesuffix(value) + last)
        return [f"{key}={before}{comma}{option.partition('=')[2]}" for option in options]

    @staticmethod
    def help(command: str) -> str:
        return f"{{}} -sc {command}=tielab"


def without_quoted(line: str) -> str:
    """The line without the quoted or escaped words before the last: Hydra would split them."""
    *before, last = WORDS.findall(line)
    return " ".join([*(word for word in before if not set(word) & set("'\"\\")), last])


def values_of(key: str) -> list[str]:
    """The values of a key that has few: of a bool, of an enumeration; else none."""
    kind: Any = Config
    for name in key.split("."):
        hints = get_type_hints(kind) if isinstance(kind, type) else {}
        if name not in hints:
            return []
        kind = hints[name]
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    found: list[str] = []
    for one in kinds:
        if one is bool:
            found += ["true", "false"]
        elif isinstance(one, type) and issubclass(one, Enum):
            found += [member.name for member in one]
    return [*found, "null"] if found and type(None) in kinds else found
