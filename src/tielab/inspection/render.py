"""An inspection as a person and as a script reads it."""

import json
import sys
from dataclasses import dataclass
from typing import Any

from tielab.errors import printable
from tielab.inspection.headers import Tensor
from tielab.inspection.inspect import Inspection
from tielab.inspection.run import RunInspection
from tielab.record import RECORD_NAME


@dataclass(frozen=True)
class Page:
    """What is said of a model: a title, facts, then sentences, then notes."""

    title: str
    facts: list[tuple[str, str]]
    warning: str
    """Where file and config disagree; empty if they do not."""
    sentence: str
    """What the other choice would cost or save."""
    notes: list[str]


def show(page: Page) -> str | None:
    """A page as plain text in a pipe; in a terminal it is printed, and None is returned."""
    if not sys.stdout.isatty():
        return to_plain(page)
    from rich.console import Console

    _print(page, Console())
    return None


def to_plain(page: Page) -> str:
    """Aligned text, ending in a line break; what comes from the file says nothing to a terminal."""
    width = max(len(label) for label, _ in page.facts)
    lines = [page.title, *(f"{label.ljust(width)}  {text}" for label, text in page.facts)]
    lines += [f"DISAGREE: {page.warning}"] if page.warning else []
    lines += [page.sentence] if page.sentence else []
    lines += [f"note: {note}" for note in page.notes]
    return "\n".join(printable(line) for line in lines) + "\n"


def _print(page: Page, console: Any) -> None:
    from rich.table import Table
    from rich.text import Text

    console.print(Text(printable(page.title), style="bold"))
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
    for label, text in page.facts:
        table.add_row(Text(label, style="dim"), Text(printable(text), overflow="fold"))
    console.print(table)
    if page.warning:
        console.print(Text(f"DISAGREE: {printable(page.warning)}", style="bold red"))
    if page.sentence:
        console.print(Text(printable(page.sentence), style="bold"))
    for note in page.notes:
        console.print(Text(f"note: {printable(note)}", style="dim"))


def page_of(found: Inspection) -> Page:
    """What is said of a safetensors model."""
    files = "1 file" if len(found.weights.files) == 1 else f"{len(found.weights.files)} files"
    title = (
        f"{found.path}: {files}, {_counted(len(found.weights.tensors), 'tensor')}, "
        f"{'/'.join(found.dtypes)}, {found.num_parameters:,} parameters, {_size(found.num_bytes)}"
    )
    facts = [("V x d", f"{found.matrix.shape[0]:,} x {found.matrix.shape[1]:,}")]
    if found.config is not None and found.config.family is not None:
        name = found.config.architecture
        facts.insert(0, ("family", found.config.family + (f" ({name})" if name else "")))
    roles = found.roles
    facts += [
        (label, _matrix(tensor, found.num_parameters))
        for label, tensor in (("token embedding", roles.embedding), ("LM head", roles.head))
        if tensor is not None
    ]
    if roles.packed_head is not None:
        facts.append(("LM head", roles.packed_head))
    if roles.position is not None:
        facts.append(("position embedding", _matrix(roles.position, found.num_parameters)))
    facts.append(("in the file", _in_file(found)))
    facts.append(("in the config", _in_config(found)))
    if found.on_load.words:
        facts.append(("transformers loads it", found.on_load.words))
    return Page(title, facts, _disagreement(found), _other_choice(found), list(found.notes))


def _matrix(tensor: Tensor, total: int) -> str:
    shape = " x ".join(f"{size:,}" for size in tensor.shape)
    share = f"{100 * tensor.num_elements / total:.1f} % of the parameters"
    return f"{tensor.name}: {shape} {tensor.dtype}, {share}, {_size(tensor.num_bytes)}"


def _in_file(found: Inspection) -> str:
    if not found.has_head:
        return "one matrix: there is no LM head"
    compared = f" ({_size(found.num_compared_bytes)} compared)" if found.num_compared_bytes else ""
    return found.in_file.value + compared


def _in_config(found: Inspection) -> str:
    if found.config is None:
        return "not said: there is no config.json"
    words = {True: "tied", False: "untied", None: "not said"}[found.config.tied]
    return f"{words} ({found.config.source})"


def _disagreement(found: Inspection) -> str:
    if not found.disagrees or found.config is None:
        return ""
    said = "tied" if found.config.tied else "untied"
    happens = f"; transformers loads it {found.on_load.words}" if found.on_load.words else ""
    return f"the config says {said}, the file holds {found.in_file.value}{happens}"


def _other_choice(found: Inspection) -> str:
    if not found.has_head:
        return ""
    return other_choice(found.tied, found.matrix.num_elements, found.num_parameters, found.matrix.num_bytes)


def other_choice(tied: bool, matrix_size: int, total: int, num_bytes: int | None) -> str:
    """What untying a tied model would cost, or tying an untied one would save.

    Args:
        matrix_size: V x d.
        total: parameters of the model.
        num_bytes: of the matrix.
    """
    what = "untying would cost" if tied else "tying would save"
    size = "" if num_bytes is None else f", {_size(num_bytes)}"
    return f"{what} {matrix_size:,} parameters ({100 * matrix_size / total:.1f} %){size}"


def page_of_run(found: RunInspection) -> Page:
    """What is said of a run of this package."""
    record, parameters = found.record, found.record.parameters
    total = parameters["total"]
    observed = {True: "one matrix", False: "two matrices", None: "not yet checked"}[record.tie_observed]
    split = record.config["model"].get("untie_at")
    facts = [
        ("V x d", f"{found.vocab_size:,} x {found.embed_dim:,}"),
        *(
            (label, f"{parameters[key]:,}, {100 * parameters[key] / total:.1f} % of the parameters")
            for label, key in (("token embedding", "token_embedding"), ("LM head", "head"))
        ),
        ("in the config", f"{'tied' if record.tied else 'untied'} (model.tied)"),
        ("in training", observed if split is None else f"split after {split:g} of the steps"),
    ]
    one, two = "was one matrix", "were two matrices"
    asked, instead = (one, two) if record.tied else (two, one)
    return Page(
        title=f"{found.path}: run {record.run_id}, {record.status}, {total:,} parameters",
        facts=facts,
        warning=f"asked for {asked}, found {instead}" if found.disagrees else "",
        sentence=other_choice(found.tied, found.matrix_size, total, None),
        notes=[f"from {RECORD_NAME}; the weights were not read"],
    )


def to_json(found: Inspection) -> str:
    """All of an inspection, as one object."""
    config, roles = found.config, found.roles
    content = {
        "path": str(found.path),
        "files": [file.name for file in found.weights.files],
        "num_tensors": len(found.weights.tensors),
        "dtypes": found.dtypes,
        "num_parameters": found.num_parameters,
        "num_bytes": found.num_bytes,
        "family": config.family if config else None,
        "architecture": config.architecture if config else None,
        "vocab_size": found.matrix.shape[0],
        "embed_dim": found.matrix.shape[1],
        "token_embedding": _json_tensor(roles.embedding, found.num_parameters),
        "lm_head": _json_tensor(roles.head, found.num_parameters),
        "position_embedding": _json_tensor(roles.position, found.num_parameters),
        "in_file": found.in_file.name.lower(),
        "tied_in_file": found.in_file.is_tied if found.has_head else None,
        "num_compared_bytes": found.num_compared_bytes,
        "tied_in_config": config.tied if config else None,
        "config_source": config.source if config else None,
        "tied_on_load": found.on_load.tied,
        "on_load": found.on_load.words or None,
        "disagree": found.disagrees,
        **_json_choice(found.tied, found.matrix.num_elements, found.matrix.num_bytes, found.has_head),
        "notes": list(found.notes),
    }
    return json.dumps(content, indent=1) + "\n"


def _json_tensor(tensor: Tensor | None, total: int) -> dict[str, Any] | None:
    if tensor is None:
        return None
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "num_parameters": tensor.num_elements,
        "num_bytes": tensor.num_bytes,
        "share": tensor.num_elements / total,
    }


def _json_choice(tied: bool, matrix_size: int, num_bytes: int | None, has_head: bool) -> dict[str, Any]:
    """What the other choice costs or saves; positive numbers under the key that applies."""
    cost = {"parameters": matrix_size, "bytes": num_bytes} if has_head else None
    return {"untying_costs": cost if tied else None, "tying_saves": None if tied else cost}


def run_to_json(found: RunInspection) -> str:
    """All of a run's inspection, as one object."""
    record = found.record
    content = {
        "path": str(found.path),
        "run_id": record.run_id,
        "status": record.status,
        "num_parameters": record.parameters["total"],
        "parameters": record.parameters,
        "vocab_size": found.vocab_size,
        "embed_dim": found.embed_dim,
        "tied_in_config": record.tied,
        "tied_in_training": record.tie_observed,
        "disagree": found.disagrees,
        **_json_choice(found.tied, found.matrix_size, None, has_head=True),
    }
    return json.dumps(content, indent=1) + "\n"


def _size(num_bytes: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if num_bytes < 1024 or unit == "GiB":
            break
        num_bytes /= 1024
    return f"{num_bytes:,.0f} {unit}" if unit == "bytes" else f"{num_bytes:,.1f} {unit}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
