"""Whether a run can start from the model in a folder: sizes, scheme, vocabulary. Imports no torch."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tielab.config import yaml_text
from tielab.errors import RequestError
from tielab.exchange.gpt2_config import Gpt2Config, read_gpt2_config

if TYPE_CHECKING:
    from tielab.data.tokenizer import Tokenizer

FORBIDDEN = {
    "embed_scale": 1.0,
    "head_map_rank": None,
    "embed_rank": None,
    "init_std": None,
    "embed_init_std": None,
    "head_init_std": None,
}
"""Keys of ``model`` that the file's function leaves no choice of, or that would have no effect."""
ALLOWED_MAPS = ("none", "linear")
"""A square linear map starts as the identity; the others would score with another matrix than the file's."""


def check_init(config: dict[str, Any]) -> None:
    """Raise RequestError if the shape or the scheme of a run is not that of the model it starts from."""
    folder, named = config["init_from"], config["init_tie_from"]
    if folder is None:
        if named is not None:
            raise RequestError(f"init_tie_from={named} needs init_from=FOLDER; add it or drop init_tie_from")
        return
    found = read_gpt2_config(Path(folder))
    model = config["model"]
    for name, value in found.model.items():
        if model[name] != value:
            _contradict(f"model.{name}={yaml_text(model[name])}", folder, yaml_text(value), f"model.{name}")
    if model["vocab_size"] not in (None, found.vocab_size):
        _contradict(f"model.vocab_size={model['vocab_size']}", folder, found.vocab_size, "the vocabulary")
    if model["block_size"] > found.num_positions:
        _contradict(f"data.block_size={model['block_size']}", folder, found.num_positions, "data.block_size")
    for name, value in FORBIDDEN.items():
        if model[name] != value:
            raise RequestError(
                f"model.{name}={yaml_text(model[name])} does not go with init_from={folder}: the weights are "
                f"the file's; set model.{name}={yaml_text(value)}"
            )
    if model["head_map"] not in ALLOWED_MAPS:
        raise RequestError(
            f"model.head_map={model['head_map']} does not go with init_from={folder}: the head would score "
            f"with another matrix than the file's; use {' or '.join(ALLOWED_MAPS)}"
        )
    if named is not None and found.tied:
        raise RequestError(
            f"init_tie_from={named} chooses between two matrices, and {folder} has one; drop init_tie_from"
        )


def _contradict(asked: str, folder: str, found: Any, key: str) -> None:
    raise RequestError(f"{asked}, but the model of init_from={folder} has {found}; set {key} to that")


def check_vocabulary(config: dict[str, Any], tokenizer: "Tokenizer") -> Gpt2Config | None:
    """The model that a run starts from, refused unless its rows are those of the tokenizer's ids.

    Raises:
        RequestError: the numbers differ, or the tokenizer in the folder gives an id to other bytes.
    """
    if config["init_from"] is None:
        return None
    folder = Path(config["init_from"])
    found = read_gpt2_config(folder)
    if found.vocab_size != tokenizer.vocab_size:
        raise RequestError(
            f"the model of init_from={folder} has {found.vocab_size} rows, the tokenizer "
            f"{tokenizer.vocab_size} ids; choose the tokenizer that the model was trained with"
        )
    theirs = folder_tokenizer(folder)
    if theirs is not None and theirs.pieces != tokenizer.pieces:
        differing = next(i for i, piece in enumerate(theirs.pieces) if piece != tokenizer.pieces[i])
        raise RequestError(
            f"id {differing} is {tokenizer.pieces[differing]!r} here and {theirs.pieces[differing]!r} in the "
            f"tokenizer of init_from={folder}; set data.tokenizer.kind=file data.tokenizer.path={folder}"
        )
    return found


def check_tie(config: dict[str, Any], found: Gpt2Config) -> None:
    """Raise RequestError if a run is to tie two matrices that differ, and names neither."""
    if not config["model"]["tied"] or found.tied or config["init_tie_from"] is not None:
        return
    from tielab.exchange.load import choose_ends, read_tensors, weight_files  # torch, where it is needed

    choose_ends(config, found, read_tensors(weight_files(found.folder)))


def folder_tokenizer(folder: Path) -> "Tokenizer | None":
    """The tokenizer beside a model, or None if there is none.

    Raises:
        RequestError: it is not byte-level, or cannot be read.
    """
    from tielab.data.build_tokenizer import read_tokenizer, tokenizer_files

    try:
        tokenizer_files(str(folder))
    except RequestError:
        return None
    return read_tokenizer(str(folder))
