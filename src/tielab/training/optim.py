"""AdamW over a partition of the parameters, and the learning-rate schedule."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import AdamW, Optimizer

from tielab.models.sharding import whole

EMBEDDING_NAMES = ("token_embed.", "position_embed.", "lm_head.")


def parameter_groups(
    model: nn.Module, weight_decay: float, embedding_weight_decay: float
) -> list[dict[str, Any]]:
    """Three groups that hold every parameter exactly once: blocks' matrices, embeddings and head, the rest.

    Vectors (biases, norms) have no weight decay. A shared matrix appears once, as an embedding.
    """
    matrices, embeddings, vectors = [], [], []
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            vectors.append(parameter)
        elif name.startswith(EMBEDDING_NAMES):
            embeddings.append(parameter)
        else:
            matrices.append(parameter)
    groups = [
        {"name": "matrices", "params": matrices, "weight_decay": weight_decay},
        {"name": "embeddings", "params": embeddings, "weight_decay": embedding_weight_decay},
        {"name": "vectors", "params": vectors, "weight_decay": 0.0},
    ]
    check_partition(groups, model)
    return groups


def check_partition(groups: list[dict[str, Any]], model: nn.Module) -> None:
    """Raise ValueError unless the groups hold each parameter of the model exactly once."""
    grouped = [id(p) for group in groups for p in group["params"]]
    if len(grouped) != len(set(grouped)):
        raise ValueError("a parameter stands in the optimizer twice")
    if set(grouped) != {id(p) for p in model.parameters()}:
        raise ValueError("the optimizer's groups do not hold exactly the model's parameters")


def build_optimizer(model: nn.Module, config: dict[str, Any]) -> Optimizer:
    """AdamW (Loshchilov & Hutter 2019) with the keys of OptimizerConfig."""
    return AdamW(
        parameter_groups(model, config["weight_decay"], config["embedding_weight_decay"]),
        lr=config["learning_rate"],
        betas=(config["beta1"], config["beta2"]),
        eps=config["epsilon"],
        fused=config["fused"],
    )


def number_by_model(state: dict[str, Any], optimizer: Optimizer, model: nn.Module) -> dict[str, Any]:
    """An optimizer's state dict with its parameters numbered as the model lists them.

    Torch numbers them as the groups list them and does not look at the numbers when it loads; the
    numbers of a sharded optimizer are the model's, and there they are looked at.
    """
    place = {id(parameter): number for number, parameter in enumerate(model.parameters())}
    listed = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    numbers = [place[id(parameter)] for parameter in listed]
    groups = [{**group, "params": [numbers[i] for i in group["params"]]} for group in state["param_groups"]]
    return {"state": {numbers[i]: kept for i, kept in state["state"].items()}, "param_groups": groups}


def clip_gradients(model: nn.Module, limit: float) -> Tensor:
    """Scale all gradients so that their global norm is at most limit; returns the norm before.

    The norm is over all parts of all gradients, on however many processes; each must call this.
    """
    by_mesh: dict[Any, list[nn.Parameter]] = {}  # torch combines no tensors that lie on different ones
    for parameter in model.parameters():
        if parameter.grad is not None:
            by_mesh.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    norms = [
        whole(get_total_norm([p.grad for p in parts if p.grad is not None])) for parts in by_mesh.values()
    ]
    norm = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
    for parts in by_mesh.values():
        clip_grads_with_norm_(parts, limit, norm)
    return norm


def learning_rate_factor(step: int, num_steps: int, warmup_fraction: float, final_fraction: float) -> float:
    """Share of the peak learning rate at optimizer step 0 <= step < num_steps.

    Linear warm-up that reaches 1 at its last step, then a cosine that ends at final_fraction.
    """
    num_warmup = math.ceil(warmup_fraction * num_steps)
    if step < num_warmup:
        return (step + 1) / num_warmup
    progress = (step - num_warmup) / max(1, num_steps - 1 - num_warmup)
    return final_fraction + (1 - final_fraction) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def build_schedule(
    optimizer: Optimizer, num_steps: int, config: dict[str, Any]
) -> torch.optim.lr_scheduler.LambdaLR:
    """The schedule as a scheduler that is stepped once per optimizer step."""
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: learning_rate_factor(
            step, num_steps, config["warmup_fraction"], config["final_fraction"]
        ),
    )
