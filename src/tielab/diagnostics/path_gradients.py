"""The gradient of the shared matrix by path: what reaches it through the lookup and through the head.

B batch, T positions, D width, V vocabulary, S the shared matrix (V, D), or E and W of an untied model.

    G_in[k] = sum over positions with x_t = k of dL/de_t        (through ``token_embed``)
    G_out[k] = sum_t dL/dz_t[k] h_t                             (through ``lm_head``)
    G_in + G_out = dL/dS

both of the whole batch, before clipping. Lopardo et al. 2026 (arXiv 2603.26663) compare |G_out| with the
norm of dL/de over the B T D activations instead of |G_in|; that number stands beside the exact ones.
"""

from collections.abc import Sequence
from typing import Any

import lightning.pytorch as L
import numpy as np
import torch
from torch import Tensor, nn

from tielab.diagnostics.base import (
    Measurement,
    SteppedDiagnostic,
    Values,
    matrix,
    single,
    with_groups,
)
from tielab.diagnostics.frequency import frequencies
from tielab.models.minigpt import MiniGPT
from tielab.models.tying import is_tied
from tielab.training.task import LanguageModelTask


class ModuleGradient:
    """What one module contributes to its matrix's gradient, added up over the backward passes it sees.

    The module's forward is repeated on a detached input, and the gradient that arrives at the output of the
    first is sent through the second. The graph that is trained with stays as it is, and with it every bit
    of its gradients; whatever the module does with its matrix, its own backward says.
    """

    def __init__(self, module: nn.Module):
        weight = matrix(module)
        self.total = torch.zeros_like(weight, dtype=torch.promote_types(weight.dtype, torch.float32))
        """dL/d(matrix) through this module, (V, D)."""
        self.activation_energy = torch.zeros((), dtype=torch.float64, device=weight.device)
        """Sum of the squares of dL/d(output)."""
        self._hook = module.register_forward_hook(self._watch)

    def remove(self) -> None:
        """Watch no longer."""
        self._hook.remove()

    def _watch(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if output.grad_fn is None:
            return  # a frozen table, or an evaluation
        again = module.forward(*(tensor.detach() for tensor in inputs))
        weight, place = matrix(module), output.output_nr  # a hook that holds the output keeps the graph alive

        def add(gradients: Sequence[Tensor]) -> None:
            gradient = gradients[place]
            self.activation_energy += gradient.square().sum(dtype=torch.float64)
            self.total += torch.autograd.grad(again, weight, gradient)[0]

        # Not a hook of the tensor: one that is registered later, and scales the gradient, would come after.
        output.grad_fn.register_prehook(add)


def path_quantities(in_squares: Values, out_squares: Values, products: Values) -> Measurement:
    """Norms, shares and cosine from |G_in|^2, |G_out|^2 and <G_in, G_out>; NaN where undefined.

    share_l2 = |G_out| / (|G_in| + |G_out|), share_energy = |G_out|^2 / (|G_in|^2 + |G_out|^2).
    """
    in_norm, out_norm = np.sqrt(in_squares), np.sqrt(out_squares)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            "in_norm": in_norm,
            "out_norm": out_norm,
            "share_l2": out_norm / (in_norm + out_norm),
            "share_energy": out_squares / (in_squares + out_squares),
            "cosine": products / (in_norm * out_norm),
        }


def row_products(a: Tensor, b: Tensor) -> Tensor:
    """<a_k, b_k> of every row: (V, D), (V, D) -> (V,) float64."""
    return (a * b).sum(dim=1, dtype=torch.float64)


def residual(through_lookup: Tensor, through_head: Tensor, gradient: Tensor) -> float:
    """Largest entry of |G_in + G_out - gradient| as a fraction of the gradient's largest."""
    largest = gradient.abs().max().clamp(min=torch.finfo(gradient.dtype).tiny)
    return float((through_lookup + through_head - gradient).abs().max() / largest)


class PathGradients(SteppedDiagnostic):
    """Logs norms of G_in and G_out, their shares and cosine, over all rows and by frequency.

    Of an untied model they are the gradients of E and W. In several processes they are those of the mean
    loss, as the optimizer gets them.

    Args:
        every_n_steps: optimizer steps from one measurement to the next; a measured step repeats the head's
            product and takes its gradient twice.

    Raises:
        RuntimeError: G_in and G_out do not add up to the gradient of the shared matrix.
    """

    name = "path_gradients"
    prefix = "gradient"

    def __init__(self, every_n_steps: int):
        super().__init__(every_n_steps)
        self._lookup: ModuleGradient | None = None
        self._head: ModuleGradient | None = None

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._membership = frequencies(trainer).membership(pl_module.device)

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, LanguageModelTask)
        begins_step = batch_idx % trainer.accumulate_grad_batches == 0
        if begins_step and self.is_due(trainer.global_step + 1, pl_module.num_steps):
            self._lookup = ModuleGradient(pl_module.model.token_embed)
            if is_tied(pl_module.model):
                self._head = ModuleGradient(pl_module.model.lm_head)

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        if self._lookup is None:
            return
        assert isinstance(pl_module, LanguageModelTask)
        found = self._measure(trainer, pl_module.model, self._lookup, self._head)
        self._remove()
        self.keep(trainer, pl_module, trainer.global_step + 1, found)

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        for watched in (self._lookup, self._head):
            if watched is not None:
                watched.remove()
        self._lookup = self._head = None

    def _measure(
        self, trainer: L.Trainer, model: MiniGPT, lookup: ModuleGradient, head: ModuleGradient | None
    ) -> Measurement:
        # A step may have begun tied and ended with two matrices; then each has its own gradient.
        if head is not None and is_tied(model):
            through_lookup, through_head = _averaged(trainer, lookup.total), _averaged(trainer, head.total)
            found = self._check(through_lookup, through_head, _gradient(model.token_embed))
        else:
            through_lookup, through_head = _gradient(model.token_embed), _gradient(model.lm_head)
            found = {}
        found |= self._by_path(model, through_lookup, through_head)
        # The mean loss of n processes has 1/n of each one's gradient at each of its own activations.
        energy = float(_averaged(trainer, lookup.activation_energy)) / trainer.world_size
        norm, out_norm = energy**0.5, float(found["out_norm"][0])
        share = out_norm / (norm + out_norm) if norm + out_norm else float("nan")
        return found | single(activation_norm=norm, share_l2_activation=share)

    def _by_path(self, model: MiniGPT, through_lookup: Tensor, through_head: Tensor) -> Measurement:
        in_squares = row_products(through_lookup, through_lookup)
        out_squares = row_products(through_head, through_head)
        products = with_groups(row_products(through_lookup, through_head), self._membership)
        row_of_id = getattr(model, "row_of_id", None)
        if row_of_id is not None:  # ids are looked up in rows that the head scores for other ids
            in_squares = in_squares[row_of_id]
            products[1:] = np.nan
        return path_quantities(
            with_groups(in_squares, self._membership), with_groups(out_squares, self._membership), products
        )

    def _check(self, through_lookup: Tensor, through_head: Tensor, gradient: Tensor) -> Measurement:
        found = residual(through_lookup, through_head, gradient)
        if found > torch.finfo(gradient.dtype).eps ** 0.5:  # not a NaN, which is the run's own to report
            raise RuntimeError(
                f"{self.name}: the gradients through token_embed and lm_head miss that of their matrix by "
                f"{found:.2g} of its largest entry; something else uses the matrix: drop the diagnostic"
            )
        return single(residual=found)


def _gradient(module: nn.Module) -> Tensor:
    """The gradient of a module's matrix as the optimizer gets it; zeros for a frozen one."""
    weight = matrix(module)
    return torch.zeros_like(weight) if weight.grad is None else weight.grad


def _averaged(trainer: L.Trainer, tensor: Tensor) -> Tensor:
    averaged = trainer.strategy.reduce(tensor, reduce_op="mean")
    assert isinstance(averaged, Tensor)
    return averaged
