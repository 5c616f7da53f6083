"""The weights of a GPT-2 folder as the initial weights of a model, and what became of their tie."""

import hashlib
import json
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load_file
from torch import Tensor

from tielab.data.tokenizer import Tokenizer
from tielab.errors import RequestError
from tielab.exchange.gpt2_config import CONFIG_NAME, Gpt2Config
from tielab.exchange.init_checks import check_vocabulary
from tielab.exchange.layout import EMBEDDING, HEAD, body_names, check_shape, from_gpt2, taken
from tielab.models.minigpt import MiniGPT

WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
"""In order of preference; each may be split, with an index beside it."""
MASKS = (".attn.bias", ".attn.masked_bias")
"""End the names of constants that older files hold."""


def start_from(config: dict[str, Any], model: MiniGPT, tokenizer: Tokenizer) -> dict[str, Any] | None:
    """Give a new model the weights that its run starts from, and say what they are.

    Args:
        config: of the run.

    Returns:
        ``files``: sha256 by file name; ``tied``: whether the folder has one matrix; ``tie``: what became of
        it; ``num_positions`` of the folder's model, of which the first are used. None: it starts anew.

    Raises:
        RequestError: the files cannot be read, or do not fit the model, or the tie cannot be had as asked.
    """
    found = check_vocabulary(config, tokenizer)
    if found is None:
        return None
    files = weight_files(found.folder)
    tensors = read_tensors(files)
    body = from_gpt2(tensors, model, num_positions=found.num_positions)
    ends, tie = choose_ends(config, found, tensors)
    _check_names(tensors, len(model.blocks))
    missing, unexpected = model.load_state_dict({**body, **ends}, strict=False)
    # A bias and a map have no counterpart in the file; they begin as nothing and as the identity.
    assert not unexpected, unexpected
    assert set(missing) <= {"lm_head.bias", "head_map.weight"}, missing
    digests = {path.name: _sha256(path) for path in (found.folder / CONFIG_NAME, *files)}
    return {"files": digests, "tied": found.tied, "tie": tie, "num_positions": found.num_positions}


def choose_ends(
    config: dict[str, Any], found: Gpt2Config, tensors: dict[str, Tensor]
) -> tuple[dict[str, Tensor], str]:
    """The ends of a run's model as entries of its state dict, and what became of the file's tie.

    Raises:
        RequestError: the file contradicts itself, or a tied model is asked of two unequal matrices.
    """
    embedding, head = _ends(tensors, found)
    tied, named = config["model"]["tied"], config["init_tie_from"]
    if not tied:
        ends = {"token_embed.weight": embedding, HEAD: embedding if head is None else head}
        return ends, "untied: both matrices start as the shared one" if head is None else "untied as it was"
    if head is None:
        return {"token_embed.weight": embedding}, "tied as it was"
    if named is not None:
        chosen = {"embedding": embedding, "head": head}[named]
        return {"token_embed.weight": chosen}, f"tied: the {named}'s matrix, the other one is dropped"
    if torch.equal(embedding, head):
        return {"token_embed.weight": embedding}, "tied: both matrices were equal"
    raise RequestError(
        f"model.tied=true, but {found.folder} has two matrices that differ by up to "
        f"{(embedding.float() - head.float()).abs().max():.3g}; add init_tie_from=embedding or "
        "init_tie_from=head, or set model.tied=false"
    )


def _ends(tensors: dict[str, Tensor], found: Gpt2Config) -> tuple[Tensor, Tensor | None]:
    """The input matrix (V, D), and the output matrix of an untied model."""
    shape = (found.vocab_size, found.model["embed_dim"])
    embedding = taken(tensors, EMBEDDING)
    check_shape(EMBEDDING, embedding, shape)
    head = tensors.get(HEAD)
    if head is not None:
        check_shape(HEAD, head, shape)
    if not found.tied and head is None:
        raise RequestError(
            f"{found.folder} says tie_word_embeddings=false and has no {HEAD}; repair one of the two"
        )
    if found.tied and head is not None and not torch.equal(head, embedding):
        raise RequestError(
            f"{found.folder} says tie_word_embeddings=true, but {HEAD} differs from {EMBEDDING}; "
            "set it to false in config.json, or take the tensor out"
        )
    return embedding, None if found.tied else head


def _check_names(tensors: dict[str, Tensor], num_layers: int) -> None:
    known = {EMBEDDING, HEAD, *(theirs for _, theirs, _ in body_names(num_layers))}
    known |= {name.removeprefix("transformer.") for name in known}
    extra = sorted(name for name in tensors if name not in known and not name.endswith(MASKS))
    if extra:
        raise RequestError(f"the checkpoint has {len(extra)} tensors that no GPT-2 has, such as {extra[0]}")


def weight_files(folder: Path) -> list[Path]:
    """The files with a model's weights.

    Raises:
        RequestError: there are none, or an index names one that is not there.
    """
    for name in WEIGHT_FILES:
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            return _parts(index)
    raise RequestError(f"{folder}: no weights there; it must hold {' or '.join(WEIGHT_FILES)}")


def _parts(index: Path) -> list[Path]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        parts = [index.with_name(name) for name in names]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RequestError(f"{index} is no index of weights; replace the file") from None
    missing = next((path for path in parts if not path.is_file()), None)
    if missing is not None:
        raise RequestError(f"{index} names {missing.name}, which is not there; fetch it")
    return parts


def read_tensors(files: list[Path]) -> dict[str, Tensor]:
    """The tensors of the files by name, on the CPU; nothing in them is executed.

    Raises:
        RequestError: a file cannot be read.
    """
    tensors: dict[str, Tensor] = {}
    for path in files:
        try:
            if path.suffix == ".safetensors":
                tensors |= load_file(path)
            else:
                tensors |= torch.load(path, map_location="cpu", weights_only=True)
        except (safetensors.SafetensorError, OSError):
            raise RequestError(f"{path} cannot be read as safetensors; fetch it again") from None
        except Exception:  # torch and pickle raise a dozen kinds
            raise RequestError(f"{path} is truncated or not weights alone; use a safetensors file") from None
    return {name: tensor for name, tensor in tensors.items() if isinstance(tensor, Tensor)}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
