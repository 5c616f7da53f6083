"""The ``config.json`` of a GPT-2 as transformers has it, in the words of ``conf/model``. Imports no torch."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tielab.errors import RequestError

CONFIG_NAME = "config.json"
NORM_EPSILON = 1e-5
"""Of every layer norm of a MiniGPT."""
SIZE_NAMES = {
    "embed_dim": "n_embd",
    "num_layers": "n_layer",
    "num_heads": "n_head",
    "hidden_dim": "n_inner",
}
"""Keys of ``model`` with their names there."""
ACTIVATION_NAMES = {"gelu": "gelu", "gelu_tanh": "gelu_new"}
"""Each with the name it is written by."""
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
REQUIRED_VALUES = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
    "layer_norm_epsilon": NORM_EPSILON,
    "quantization_config": None,
}
"""What a MiniGPT computes, in the words of the file; also the values where a file says nothing."""
DEFAULT_SIZES = {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
"""What transformers takes where a file says nothing."""


@dataclass(frozen=True)
class Gpt2Config:
    """The shape of a GPT-2, from its file."""

    folder: Path
    model: dict[str, Any]
    """``embed_dim``, ``num_layers``, ``num_heads``, ``hidden_dim``, ``activation``."""
    vocab_size: int
    num_positions: int
    tied: bool


def gpt2_config(model: dict[str, Any], vocab_size: int, tied: bool, init_std: float) -> dict[str, Any]:
    """The ``config.json`` of a model.

    Args:
        model: the config group of that name.
        tied: whether the file holds one matrix.
    """
    dropout = model["dropout"]
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": vocab_size,
        "n_positions": model["block_size"],
        **{theirs: model[ours] for ours, theirs in SIZE_NAMES.items()},
        "activation_function": ACTIVATION_NAMES[model["activation"]],
        "resid_pdrop": dropout,
        "embd_pdrop": dropout,
        "attn_pdrop": dropout,
        "initializer_range": init_std,
        **{name: value for name, value in REQUIRED_VALUES.items() if value is not None},
        "bos_token_id": None,
        "eos_token_id": None,
        "tie_word_embeddings": tied,
        "dtype": "float32",
    }


def read_gpt2_config(folder: Path) -> Gpt2Config:
    """The shape of the model in a folder.

    Raises:
        RequestError: no such folder or file, another architecture, or a feature that MiniGPT does not have.
    """
    found = _read(folder / CONFIG_NAME)
    kind = found.get("model_type")
    if kind != "gpt2":
        raise RequestError(
            f"{folder} holds a model of type {kind}; only GPT-2-shaped ones (gpt2) can be read"
        )
    for name, value in REQUIRED_VALUES.items():
        if found.get(name, value) != value:
            raise RequestError(
                f"{folder / CONFIG_NAME} has {name}={json.dumps(found[name])}, and MiniGPT computes with "
                f"{json.dumps(value)}; choose another model"
            )
    tied = found.get("tie_word_embeddings", True)
    if not isinstance(tied, bool):
        raise RequestError(
            f"{folder / CONFIG_NAME} has tie_word_embeddings={json.dumps(tied)}; it must be true or false"
        )
    activation = found.get("activation_function", "gelu_new")
    if activation not in ACTIVATIONS:
        raise RequestError(
            f"{folder / CONFIG_NAME} has activation_function={activation}; "
            f"MiniGPT has {', '.join(ACTIVATIONS)} only"
        )
    sizes = {name: _size(found, name, default, folder) for name, default in DEFAULT_SIZES.items()}
    if found.get("n_inner") is None:
        found["n_inner"] = 4 * sizes["n_embd"]
    sizes["n_inner"] = _size(found, "n_inner", 0, folder)
    model = {ours: sizes[theirs] for ours, theirs in SIZE_NAMES.items()}
    return Gpt2Config(
        folder=folder,
        model={**model, "activation": ACTIVATIONS[activation]},
        vocab_size=sizes["vocab_size"],
        num_positions=sizes["n_positions"],
        tied=tied,
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise RequestError(
            f"{path.parent}: no {path.name} there; give the folder of a model as transformers saves it"
        ) from None
    except (OSError, ValueError) as error:
        raise RequestError(f"{path} cannot be read as JSON ({error}); replace the file") from None
    if not isinstance(found, dict):
        raise RequestError(f"{path} is not the config of a model: found no keys; replace the file")
    return found


def _size(found: dict[str, Any], name: str, default: int, folder: Path) -> int:
    value = found.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise RequestError(f"{folder / CONFIG_NAME} has {name}={json.dumps(value)}; it must be at least 1")
    return value
