"""What a stranger's run may do here: a ``run.yaml`` is values only and writes where its reader agreed to.

Hydra takes far more than values from a config: sections of its own that import and call, other files by
name, expressions that read the environment. So a file that is not ours is looked at before Hydra is.
Imports no torch.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from hydra._internal.utils import get_args_parser
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from tielab.config import GROUPS, LATER_DEFAULTS, LAYOUT_NAME, SCHEMA_NAME, plain
from tielab.errors import RequestError, printable
from tielab.explain import explain
from tielab.schema import Config

MAX_BYTES = 1_000_000
"""Of a run.yaml; one that names a thousand files has a tenth of it."""
SCALARS = (str, int, float, bool, type(None))
TOKEN_CACHE = "*-*-*/meta.json"
"""What a used cache holds."""


def check_arguments(arguments: Sequence[str]) -> None:
    """Refuse a command line that would let Hydra read anything but ``conf/``, config groups and a run.yaml.

    Raises:
        RequestError: the run that ``--config-dir`` and ``--config-name`` name is not values only, or would
            write to a place that is neither this one nor named in the arguments.
    """
    asked, _ = get_args_parser().parse_known_args(list(arguments))
    if asked.experimental_rerun is not None:
        raise RequestError("--experimental-rerun runs what is in a pickle; use tielab rerun RUN")
    if asked.config_path is not None:
        raise RequestError("--config-path is not taken here; use --config-dir RUN --config-name run")
    name = str(asked.config_name or "config").removesuffix(".yaml")
    if "/" in name:
        raise RequestError(f"--config-name {name} is a path; use --config-dir RUN --config-name run")
    if asked.config_dir is None:
        return
    folder = Path(asked.config_dir)
    _refuse_shadows(folder, ("hydra",))
    primary = folder / f"{name}.yaml"
    if not primary.is_file():
        return
    config = read_run_yaml(primary)
    _refuse_shadows(folder, tuple(_top_level_keys()) + GROUPS)
    if not (asked.cfg or asked.info or asked.help or asked.hydra_help):
        check_places(config, primary, {str(o).partition("=")[0].lstrip("+") for o in asked.overrides})


def read_run_yaml(path: Path) -> dict[str, Any]:
    """The config in a ``run.yaml``, ``defaults`` left out, if it is plain values and has the keys of ours.

    Raises:
        RequestError: anything else: tags, aliases, interpolations, a package header, foreign keys.
    """
    config = _load(path)
    if not isinstance(config, dict):
        raise RequestError(f"{path} is not the config of a run: found no keys; name the folder of a run")
    for key, value in _leaves(config):
        shown = key or "a value"
        if not isinstance(value, SCALARS):
            raise RequestError(f"{path}: {shown} is a {type(value).__name__}, not text or a number")
        if "${" in f"{key} {value}":
            raise RequestError(f"{path}: {shown} holds an interpolation; a run.yaml has values only")
        if f"{key}{value}" != printable(f"{key}{value}", keep="\n\t"):
            raise RequestError(f"{path}: {shown} holds control characters; delete them")
    known = _top_level_keys()
    foreign = sorted(config.keys() - known - {"defaults"}, key=str)
    if foreign:
        raise RequestError(f"{path} has a key that is not of a run: {foreign[0]}; delete it")
    missing = sorted(known - config.keys() - LATER_DEFAULTS.keys())
    if missing:
        raise RequestError(f"{path} is incomplete: {', '.join(missing)} missing")
    _check_defaults(config.pop("defaults", None), path)
    try:
        typed = OmegaConf.merge(OmegaConf.structured(Config), config)
        assert isinstance(typed, DictConfig)
        return plain(typed)
    except OmegaConfBaseException as error:
        raise RequestError(f"{path}: {explain(error)}") from None


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases, of which a few lines unfold to billions of values, and without duplicate keys."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep)
        if len(mapping) != len(node.value):
            raise yaml.YAMLError(f"a key twice in the section that begins in line {node.start_mark.line + 1}")
        return mapping


def _load(path: Path) -> Any:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise RequestError(f"{path} is larger than {MAX_BYTES} bytes; it is not the config of a run")
        text = path.read_text(encoding="utf-8")
        config = yaml.load(text, _PlainLoader)
    except OSError as error:
        raise RequestError(f"{path} cannot be read ({error.strerror}); check its permissions") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        if isinstance(error, RequestError):
            raise
        reason = " ".join(str(error).split())[:200]
        raise RequestError(f"{path} is not the config of a run: {reason}") from None
    # Hydra would put the file elsewhere in the config, for instance into its own part.
    if any(re.match(r"\s*#\s*@", line) for line in text.splitlines()):
        raise RequestError(f"{path} has a package header (# @package); delete it")
    return config


def _leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys with their values; a section gives its key with None as well."""
    if isinstance(node, dict):
        for key, value in node.items():
            full = f"{prefix}.{key}" if prefix else str(key)
            yield full, None
            yield from _leaves(value, full)
    elif isinstance(node, list):
        for value in node:
            yield from _leaves(value, prefix)
    else:
        yield prefix, node


def _top_level_keys() -> set[str]:
    return set(get_type_hints(Config))


def _check_defaults(defaults: Any, path: Path) -> None:
    """Ours are schema, layout, the file itself, and groups that nobody has chosen."""
    ours = [SCHEMA_NAME, LAYOUT_NAME, "_self_"]
    if not isinstance(defaults, list) or defaults[: len(ours)] != ours:
        raise RequestError(f"{path}: its defaults list is not the one of a run; it must begin with {ours}")
    for entry in defaults[len(ours) :]:
        groups = entry.items() if isinstance(entry, dict) else ()
        if not groups or any(not group.isidentifier() or option is not None for group, option in groups):
            raise RequestError(f"{path}: its defaults list asks for another config: {entry}; delete it")


def _refuse_shadows(folder: Path, groups: Sequence[str]) -> None:
    """Files beside a run.yaml that Hydra would take for parts of the config."""
    names = [f"{SCHEMA_NAME}.yaml", f"{LAYOUT_NAME}.yaml", *groups]
    found = next((name for name in names if (folder / name).exists()), None)
    if found is not None:
        raise RequestError(f"{folder / found} is not of a run and would change the config; remove it")


def check_places(config: dict[str, Any], path: Path, overridden: set[str]) -> None:
    """Refuse a place to write to that is neither below this folder, nor in use here, nor asked for."""
    run = path.resolve().parent
    output_dir, cache_dir = config["output_dir"], config["data"]["cache_dir"]
    # A run that is repeated where it lies: OUTPUT/runs/RUN or OUTPUT/sweeps/SWEEP/JOB.
    own = _is_below_here(output_dir) or Path(output_dir).resolve() in run.parents[1:3]
    if "output_dir" not in overridden and not own:
        _refuse_place("output_dir", output_dir, path)
    if "data.cache_dir" not in overridden and not is_cache_in_use(cache_dir):
        _refuse_place("data.cache_dir", cache_dir, path)
    if not overridden & {"data", "data.url", "data.url.address", "data.hub", "data.hub.name"}:
        check_address(config["data"], path)


def check_address(data_config: dict[str, Any], path: Path) -> None:
    """Refuse to download what a config names, unless it has been downloaded here before."""
    named = {"url": "address", "hub": "name"}
    section = next((name for name in named if data_config.get(name) is not None), None)
    if section is None or data_config[section][named[section]] is None or _is_downloaded(data_config):
        return
    asked = f"data.{section}.{named[section]}={data_config[section][named[section]]}"
    raise RequestError(
        f"{path} would download {asked}, which was not done here before; add {asked} to its command if it may"
    )


def _is_downloaded(data_config: dict[str, Any]) -> bool:
    from tielab.data.corpus import find_source

    url = data_config.get("url")
    # Without a hash the source downloads, in order to tell it.
    return (url is None or url["sha256"] is not None) and find_source(data_config).is_here()


def is_cache_in_use(cache_dir: str) -> bool:
    """Whether a token cache is below this folder, the default one, or has been written to before."""
    if _is_below_here(cache_dir):
        return True
    named = Path(cache_dir).expanduser().resolve()
    default = Path(os.environ.get("TIELAB_CACHE") or Path.home() / ".cache" / "tielab").resolve()
    return named == default or next(named.glob(TOKEN_CACHE), None) is not None


def _is_below_here(place: str) -> bool:
    path = Path(place)
    return not (path.is_absolute() or place.startswith("~") or ".." in path.parts)


def _refuse_place(key: str, value: str, path: Path) -> None:
    raise RequestError(
        f"{path} would write to {key}={value}, which is not in use here; "
        f"add {key}={value} to its command if it may, or {key}=FOLDER"
    )


PLACE_NAME = re.compile(r"dir|path|root|folder|file(?!name)", re.IGNORECASE)
"""Arguments that name a place by themselves; a file name is relative to one of these."""


def check_arguments_stay_within(target: str, arguments: dict[str, Any], places: Sequence[Path]) -> None:
    """Refuse text among the arguments of a callback or logger that leads out of the places it may write to.

    Raises:
        RequestError: an argument named like a place lies elsewhere; any other one is a path that leads up,
            home, to another file system, or elsewhere.
    """
    for key, value in _leaves(arguments):
        if not isinstance(value, str):
            continue
        names_place = PLACE_NAME.search(key) is not None
        strange = value.startswith("~") or ".." in Path(value).parts or ":/" in value or "\0" in value
        if strange or (names_place and "$" in value):
            _refuse_argument(target, key, value, places)
        if (names_place or Path(value).is_absolute()) and not is_within(value, places):
            _refuse_argument(target, key, value, places)


def refuse_links(folder: Path) -> None:
    """Raise RequestError if a file below a stranger's folder is a link: going on would write through it."""
    found = next((path for path in sorted(folder.rglob("*")) if path.is_symlink()), None)
    if found is not None:
        raise RequestError(f"{found} is a link, and would be written through; put a copy in its place")


def is_within(path: str | Path, places: Sequence[Path]) -> bool:
    """Whether a path lies in one of the folders once every link is followed."""
    real = Path(path).resolve()
    return any(real.is_relative_to(place.resolve()) for place in places)


def _refuse_argument(target: str, key: str, value: str, places: Sequence[Path]) -> None:
    raise RequestError(
        f"_target_ {target}: {key}={value} leads outside the run; name a folder below output_dir"
        + (f" ({places[-1]})" if places else "")
    )
