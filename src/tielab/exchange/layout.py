"""The tensors of a MiniGPT under the names of transformers' ``GPT2LMHeadModel``, and back.

D width, V vocabulary. GPT-2 stores the maps inside a block as (inputs, outputs), torch as (outputs, inputs).
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from tielab.errors import RequestError
from tielab.models.ends import Rotation
from tielab.models.minigpt import MiniGPT
from tielab.models.tying import is_tied

EMBEDDING, HEAD = "transformer.wte.weight", "lm_head.weight"
OUTER = {
    "position_embed.weight": "transformer.wpe.weight",
    "final_norm.weight": "transformer.ln_f.weight",
    "final_norm.bias": "transformer.ln_f.bias",
}
NORMS = {"norm1": "ln_1", "norm2": "ln_2"}
MAPS = {
    "attention.query_key_value": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
}


def body_names(num_layers: int) -> Iterator[tuple[str, str, bool]]:
    """Each tensor but the two ends: our name, theirs, and whether it is stored transposed."""
    for ours, theirs in OUTER.items():
        yield ours, theirs, False
    for i in range(num_layers):
        for ours, theirs in {**NORMS, **MAPS}.items():
            for kind in ("weight", "bias"):
                transposed = ours in MAPS and kind == "weight"
                yield f"blocks.{i}.{ours}.{kind}", f"transformer.h.{i}.{theirs}.{kind}", transposed


def to_gpt2(model: MiniGPT, *, untied: bool) -> dict[str, Tensor]:
    """The tensors of a model in float32, a shared matrix once.

    Args:
        untied: write the input and the output matrix that the model computes with, whatever its scheme.

    Raises:
        RequestError: as ``check_representable``, or a weight is no number.
    """
    check_representable(model, untied=untied)
    state = model.state_dict()
    tensors = {
        theirs: state[ours].T if transposed else state[ours]
        for ours, theirs, transposed in body_names(len(model.blocks))
    }
    if is_tied(model) and not untied:
        tensors[EMBEDDING] = state["token_embed.weight"]
    else:
        tensors[EMBEDDING], tensors[HEAD] = effective_ends(model)
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise RequestError(f"{name} has values that are no numbers: this training diverged; name another")
    return {name: tensor.detach().float().contiguous().clone() for name, tensor in tensors.items()}


def check_representable(model: MiniGPT, *, untied: bool) -> None:
    """Raise RequestError, naming the key, if a GPT-2 cannot compute what a model computes."""
    if model.lm_head.bias is not None:
        raise RequestError(
            "model.output_bias=true: the head of a GPT-2 has no bias, so this run has no export"
        )
    obstacle = None if untied else _obstacle(model)
    if obstacle is not None:
        raise RequestError(
            f"{obstacle} has no place in a GPT-2; --untied writes the two matrices that the model comes to"
        )


def _obstacle(model: MiniGPT) -> str | None:
    """What stands between the matrices of a model and what it looks up and scores with, as its key."""
    if not isinstance(model.embed_up, nn.Identity):
        return f"model.embed_rank={model.token_embed.embedding_dim}"
    if model.row_of_id is not None:
        return "model.head_map=permutation"
    if isinstance(model.head_map, Rotation):
        return "model.head_map=rotation"
    if not isinstance(model.head_map, nn.Identity):
        return "model.head_map=linear"
    if model.embed_scale != 1 and is_tied(model):
        return f"model.embed_scale={model.embed_scale:g}"
    return None


@torch.no_grad()
def effective_ends(model: MiniGPT) -> tuple[Tensor, Tensor]:
    """The matrices (V, D) by which a model without output bias looks ids up and scores them."""
    embedding = model.look_up(torch.arange(model.vocab_size)) * model.embed_scale
    head = model.lm_head.weight
    assert isinstance(head, Tensor)
    if not isinstance(model.head_map, nn.Identity):
        # W (A h) = (W A) h, rounded once.
        factor = getattr(model.head_map, "matrix", None)
        factor = model.head_map.weight if factor is None else factor
        assert isinstance(factor, Tensor)
        head = head.double() @ factor.double()
    return embedding, head


def from_gpt2(tensors: Mapping[str, Tensor], model: MiniGPT, *, num_positions: int) -> dict[str, Tensor]:
    """The body of a file's model as entries of a state dict, for positions up to the model's block size.

    Raises:
        RequestError: a tensor is missing, or of another shape than the model's.
    """
    body = {}
    for ours, theirs, transposed in body_names(len(model.blocks)):
        tensor = taken(tensors, theirs)
        if ours == "position_embed.weight":
            expected = (num_positions, model.position_embed.embedding_dim)
            check_shape(theirs, tensor, expected)
            tensor = tensor[: model.block_size]
        body[ours] = tensor.T if transposed else tensor
        check_shape(theirs, body[ours], tuple(model.get_parameter(ours).shape))
    return body


def taken(tensors: Mapping[str, Tensor], name: str) -> Tensor:
    """The tensor of a name; files of the body alone leave its first word out."""
    for known in (name, name.removeprefix("transformer.")):
        if known in tensors:
            return tensors[known]
    raise RequestError(f"the checkpoint has no {name}; name another, of a GPT-2 language model")


def check_shape(name: str, tensor: Tensor, expected: tuple[int, ...]) -> None:
    """Raise RequestError unless a tensor of a file holds real numbers in the shape that its config says."""
    if tuple(tensor.shape) != expected:
        raise RequestError(f"the checkpoint's {name} is {tuple(tensor.shape)}, its config says {expected}")
    if not tensor.is_floating_point():
        raise RequestError(f"the checkpoint's {name} is of {tensor.dtype}; it must be of floating point")
