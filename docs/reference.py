"""The parts of the reference that are generated while MkDocs builds the site, from what they describe.

A line ``{{ NAME }}`` of a page becomes what ``PARTS[NAME]`` returns. Nothing here is copied by hand: keys and
meanings are read from the schema, values from ``conf/``, commands from click. Imports no torch.
"""

import ast
import dataclasses
import html
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, EnumMeta
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, get_args, get_type_hints

import click
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from tielab import record, schema
from tielab.cli import COMMANDS, main
from tielab.config import register
from tielab.diagnostics.columns import BY_FREQUENCY, DIAGNOSTIC_COLUMNS, OF_GROUPS
from tielab.tracking.metrics_csv import METRIC_COLUMNS

CONF = Path(__file__).resolve().parents[1] / "conf"


@dataclasses.dataclass(frozen=True)
class Key:
    """One key of the config or one field of a file."""

    name: str
    kind: str
    meaning: str
    section: type
    """The dataclass it is a field of."""


def meanings(module: ModuleType) -> dict[tuple[str, str], str]:
    """The docstring below every field of a module's dataclasses, by (class, field); blank if it has none."""
    found = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for statement, after in zip(node.body, [*node.body[1:], None], strict=True):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                found[node.name, statement.target.id] = _docstring(after)
    return found


def _docstring(node: ast.stmt | None) -> str:
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ):
        return " ".join(node.value.value.split())
    return ""


def keys_of(section: type, module: ModuleType, prefix: str = "") -> Iterator[Key]:
    """The fields of a dataclass in its order, those of dataclasses in it with dotted names."""
    texts = meanings(module)
    for name, kind in get_type_hints(section).items():
        nested = next((k for k in (kind, *get_args(kind)) if dataclasses.is_dataclass(k)), None)
        if isinstance(nested, type):
            if texts[section.__name__, name] or nested is not kind:
                yield Key(f"{prefix}{name}", type_text(kind), texts[section.__name__, name], section)
            yield from keys_of(nested, module, f"{prefix}{name}.")
        else:
            yield Key(f"{prefix}{name}", type_text(kind), texts[section.__name__, name], section)


def type_text(kind: Any) -> str:
    """A type as a person writes its values: an enum as its values, None as null."""
    if isinstance(kind, UnionType):
        return " | ".join(type_text(part) for part in get_args(kind))
    if isinstance(kind, EnumMeta):
        members: list[Enum] = list(kind)
        return " | ".join(str(member.value) for member in members)
    if kind is type(None):
        return "null"
    return (
        kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind).replace("typing.", "")
    )


def defaults() -> dict[str, str]:
    """Every dotted key of the default config with its value as YAML, interpolations as they are written."""
    register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composed = OmegaConf.to_container(compose("config"), resolve=False, enum_to_str=True)
    assert isinstance(composed, dict)
    return dict(_flat(composed))


def _flat(node: dict[Any, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in node.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _yaml(value)


def _yaml(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def config_keys() -> str:
    """A table for each section of the config: key and type, default, meaning."""
    values = defaults()
    parts = []
    found = list(keys_of(schema.Config, schema))
    for section in dict.fromkeys(key.section for key in found):
        rows = [
            (f"{_code(key.name)}<br>{key.kind}", _code(values.get(key.name, "")), key.meaning)
            for key in found
            if key.section is section
        ]
        names = [key.name for key in found if key.section is section]
        title = names[0].rpartition(".")[0] or "the run"
        about = inspect.cleandoc(section.__doc__ or "") if "(" not in (section.__doc__ or "(") else ""
        parts.append(f"## {title}\n\n{about}\n\n{_table(('key and type', 'default', 'meaning'), rows)}")
    return "\n\n".join(parts)


def config_options() -> str:
    """A table for each config group: option, what its file says of it, the keys it sets."""
    parts = []
    for group in sorted(path for path in CONF.rglob("*") if path.is_dir() and path.name != "experiments"):
        files = [path for path in sorted(group.glob("*.yaml")) if not path.stem.startswith("_")]
        if files and "experiments" not in group.parts:
            rows = [(_code(path.stem), *_option(path)) for path in files]
            title = str(group.relative_to(CONF))
            parts.append(f"## {title}\n\n{_table(('option', 'what it is', 'sets'), rows)}")
    return "\n\n".join(parts)


def _option(path: Path) -> tuple[str, str]:
    text = path.read_text(encoding="utf-8")
    comments = re.match(r"(?:#.*\n)*", text)
    assert comments is not None
    lines = [line.lstrip("# ") for line in comments[0].splitlines() if "@package" not in line]
    content = yaml.safe_load(text) or {}
    base = [str(entry) for entry in content.pop("defaults", []) if entry not in ("_self_", "_shared")]
    sets = [_code(f"{name}={value}") for name, value in _flat(content) if not name.endswith("_target_")]
    inherited = [f"as {_code(name)}" for name in base if not name.startswith("_")]
    return " ".join(lines), "<br>".join([*inherited, *sets])


def commands() -> str:
    """The help of every command, as ``tielab NAME --help`` prints it."""
    parts = []
    with click.Context(main, info_name="tielab") as group:
        for name in COMMANDS:
            command = main.get_command(group, name)
            assert command is not None
            with click.Context(command, info_name=name, parent=group, max_content_width=100) as context:
                parts.append(f"## tielab {name}\n\n```text\n{command.get_help(context)}\n```")
    return "\n\n".join(parts)


def record_fields() -> str:
    """A table of the fields of record.json, and one for each kind of object in it."""
    parts = []
    for section in (record.Record, record.Validation, record.Throughput, record.Attempt):
        rows = [(f"{_code(key.name)}<br>{key.kind}", key.meaning) for key in keys_of(section, record)]
        parts.append(
            f"### {section.__name__}\n\n{_doc(section)}\n\n{_table(('field and type', 'meaning'), rows)}"
        )
    return "\n\n".join(parts)


def metric_columns() -> str:
    """A table of the columns of metrics.csv that every run has."""
    return _table(("column", "meaning"), [(_code(name), text) for name, text in METRIC_COLUMNS.items()])


def diagnostic_columns() -> str:
    """A table of the columns of the diagnostics, those of the eleven groups of rows as one pattern."""
    rows = [(_code(name), text) for name, text in DIAGNOSTIC_COLUMNS.items() if "_by_frequency/" not in name]
    for name, text in (BY_FREQUENCY | OF_GROUPS).items():
        prefix, _, quantity = name.partition("/")
        rows.append((_code(f"{prefix}_by_frequency/{quantity}/GROUP"), f"{text} Of one group of rows."))
    return _table(("column", "meaning"), rows)


def _doc(section: type) -> str:
    return inspect.cleandoc(section.__doc__ or "").partition("\n\n")[0]


def _code(text: str) -> str:
    # Markdown would read the underscores of _target_ as emphasis.
    escaped = html.escape(text).replace("_", "&#95;").replace("*", "&#42;")
    return f"<code>{escaped}</code>" if text else ""


def _table(heading: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heading, tuple("---" for _ in heading), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "&#124;") for cell in line) + " |" for line in lines)


PARTS: dict[str, Callable[[], str]] = {
    part.__name__: part
    for part in (config_keys, config_options, commands, record_fields, metric_columns, diagnostic_columns)
}


def filled(markdown: str) -> str:
    """A page with its ``{{ NAME }}`` lines replaced."""
    return re.sub(r"^\{\{ (\w+) \}\}$", lambda found: PARTS[found[1]](), markdown, flags=re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs calls this with the text of every page."""
    return filled(markdown)
