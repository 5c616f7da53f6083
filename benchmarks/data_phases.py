"""Seconds of each phase of a cold ``prepare``."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.measure import seconds
from tielab.data.build_tokenizer import build_tokenizer
from tielab.data.encode import write_splits
from tielab.data.prepare import prepare
from tielab.data.source import split_documents

PHASES = ("read", "train", "encode", "write")


class Phases:
    """Seconds of each phase of a ``prepare``, each without those it contains."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time counted under a name and taken from the rest."""

        def call(*args: Any, **kwargs: Any) -> Any:
            inside, started = sum(self.seconds.values()), time.perf_counter()
            result = function(*args, **kwargs)
            taken = time.perf_counter() - started
            self.seconds[name] += taken - (sum(self.seconds.values()) - inside)
            return result

        return call

    def timed_items(self, name: str, function: Callable[..., Iterable[Any]]) -> Callable[..., Iterator[Any]]:
        """The same of a function whose work is done as its items are asked for."""

        def items(*args: Any) -> Iterator[Any]:
            end, iterator = object(), iter(function(*args))
            following = self.timed(name, lambda: next(iterator, end))
            while (item := following()) is not end:
                yield item

        return items


def prepare_in_phases(data_config: dict[str, Any]) -> dict[str, float]:
    """Seconds of a cold ``prepare``, and of its phases."""
    phases = Phases()

    def encoding(folder: Path, documents: Any, tokenizer: Any, dtype: str) -> Any:
        encoder = phases.timed("encode", tokenizer.encode_documents)
        with patch.object(tokenizer, "encode_documents", encoder):
            return write_splits(folder, documents, tokenizer, dtype)

    inner: dict[str, Any] = {
        "build_tokenizer": phases.timed("train", build_tokenizer),
        "write_splits": phases.timed("write", encoding),
        "split_documents": phases.timed_items("read", split_documents),
    }
    with patch.multiple("tielab.data.prepare", **inner):
        whole = seconds(lambda: prepare(data_config))
    return {"cold": whole, **{name: phases.seconds[name] for name in PHASES}}
