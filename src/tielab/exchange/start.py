"""A run or a sweep from the model in a folder: its sizes and its tokenizer as overrides of ``train.py``'s."""

from collections.abc import Sequence
from pathlib import Path

from tielab import launch
from tielab.config import yaml_text
from tielab.errors import RequestError
from tielab.exchange.gpt2_config import read_gpt2_config
from tielab.exchange.init_checks import folder_tokenizer

GROUP_OF = {
    "model.activation": ("model",),
    "model.embed_dim": ("model", "width"),
    "model.num_layers": ("model",),
    "model.num_heads": ("model", "width"),
    "model.hidden_dim": ("model", "width"),
    "model.tied": ("tying",),
    "data.tokenizer.kind": ("vocab",),
    "data.tokenizer.path": ("vocab", "data.tokenizer.kind"),
    "data.tokenizer.vocab_size": ("vocab", "data.tokenizer.kind"),
}
"""Other keys of a request that decide one as well: where one is given, the request is left as it is."""


def start(folder: Path, overrides: Sequence[str], *, sweep: bool = False) -> int:
    """Run ``train.py`` with the weights of a folder, and return its exit status.

    Args:
        overrides: of the request; they win, and a size that contradicts the folder is refused.
        sweep: whether they may hold lists.

    Raises:
        RequestError: there is no model that can be read, or the config groups are not here.
    """
    groups = Path(__file__).parents[3] / "conf"
    if not groups.is_dir():
        raise RequestError(f"{groups} is not there: import starts train.py, which needs a checkout")
    arguments = [*import_overrides(folder, overrides), *overrides]
    return launch.main(groups, ["-m", *arguments] if sweep else arguments)


def import_overrides(folder: Path, overrides: Sequence[str]) -> list[str]:
    """The overrides that a folder's model asks for, but those that the request decides itself.

    Raises:
        RequestError: no model or no tokenizer is there, or its ids are not the model's rows.
    """
    given = {override.partition("=")[0].lstrip("+~") for override in overrides}
    found = read_gpt2_config(folder)
    asked = {f"model.{name}": value for name, value in found.model.items()}
    asked |= {"model.tied": found.tied, "data.block_size": found.num_positions}
    if not given & {"vocab", "data.tokenizer.kind"}:
        tokenizer = folder_tokenizer(folder)
        if tokenizer is None:
            raise RequestError(f"{folder}: no tokenizer there; add vocab=NAME or data.tokenizer.path=FILE")
        if tokenizer.vocab_size != found.vocab_size and "data.tokenizer.path" not in given:
            raise RequestError(
                f"the model in {folder} has {found.vocab_size} rows, its tokenizer {tokenizer.vocab_size} "
                "ids; cut or extend one of them to the other"
            )
        asked |= {
            "data.tokenizer.kind": "file",
            "data.tokenizer.path": quoted_value(str(folder.resolve())),
            "data.tokenizer.vocab_size": found.vocab_size,
        }
    asked["init_from"] = quoted_value(str(folder.resolve()))
    left = {key for key in asked if given & {key, *GROUP_OF.get(key, ())}}
    return [f"{key}={yaml_text(value)}" for key, value in asked.items() if key not in left]


def quoted_value(text: str) -> str:
    """Text as a value of a Hydra override, whatever characters it has."""
    return "'" + text.replace("'", "\\'") + "'"
