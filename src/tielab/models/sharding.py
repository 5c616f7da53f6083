"""How one model is spread over processes: FSDP2 shard groups, and matrices split by tensor parallelism.

V vocabulary, D width. A mesh has the dimensions ``data_parallel`` (processes that read different
windows) and ``tensor_parallel`` (processes that hold parts of one model and read the same ones).
"""

from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

if TYPE_CHECKING:
    from tielab.models.minigpt import MiniGPT


def shard(model: "MiniGPT", mesh: DeviceMesh) -> None:
    """Spread a model over the processes of a mesh, in place; every process must call it."""
    if mesh["tensor_parallel"].size() > 1:
        _split_matrices(model, mesh["tensor_parallel"])
    data_parallel = mesh["data_parallel"]
    # One group: two would hold a shared matrix twice, or leave the head with a part of it.
    fully_shard([model.token_embed, model.lm_head], mesh=data_parallel)
    for block in model.blocks:
        fully_shard(block, mesh=data_parallel)
    fully_shard(model, mesh=data_parallel)


def is_sharded(model: nn.Module) -> bool:
    """Whether a process holds parts of the parameters only."""
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def whole(tensor: Tensor) -> Tensor:
    """A tensor with all its parts, gathered if it is spread; then every process must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _split_matrices(model: "MiniGPT", mesh: DeviceMesh) -> None:
    """Split embedding and head by rows of V, the MLPs by hidden units; attention stays whole.

    A tied head has no parameter of its own and looks the embedding's up at every use, so it scores
    with the rows that the embedding got; ``parallelize_module`` on a head that shares would give it
    a second matrix.
    """
    parallelize_module(model.token_embed, mesh, RowwiseParallel(input_layouts=Replicate()))
    distribute_module(
        model.lm_head,
        mesh,
        _split_rows,
        _spread_hidden,  # type: ignore[arg-type]  # declared as returning None, used as forward hooks
        _gather_logits,  # type: ignore[arg-type]
    )
    for block in model.blocks:
        mlp = block.get_submodule("mlp")
        parallelize_module(mlp, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def _split_rows(name: str, module: nn.Module, mesh: DeviceMesh) -> None:
    for key, parameter in list(module.named_parameters(recurse=False)):
        module.register_parameter(key, nn.Parameter(distribute_tensor(parameter, mesh, [Shard(0)])))


def _spread_hidden(module: nn.Module, inputs: tuple[Tensor], mesh: DeviceMesh) -> tuple[Tensor]:
    return (DTensor.from_local(inputs[0], mesh, [Replicate()], run_check=False),)


def _gather_logits(module: nn.Module, logits: DTensor, mesh: DeviceMesh) -> Tensor:
    return logits.redistribute(placements=[Replicate()]).to_local()
