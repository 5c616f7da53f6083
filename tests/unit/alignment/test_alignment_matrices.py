"""A network's token matrices are what it does with a token, whatever the way its weights are stored."""

import numpy as np
import pytest
import torch
from torch import nn

from tielab.alignment.matrices import input_vectors, output_vectors, token_matrices
from tielab.models.minigpt import MiniGPT


def network(tied, **changes):
    sizes = {"vocab_size": 20, "block_size": 4, "embed_dim": 8, "num_layers": 1, "num_heads": 2}
    return MiniGPT(**sizes, hidden_dim=16, tied=tied, **changes)


class Permuted(nn.Module):
    """A head that scores with the rows of another one in another order."""

    def __init__(self, head, order):
        super().__init__()
        self.head, self.order = head, order

    def forward(self, hidden):
        return self.head(hidden)[..., self.order]


def test_a_tied_network_has_one_matrix():
    model = network(tied=True)
    matrices = token_matrices(model)
    assert list(matrices) == [""]
    assert np.array_equal(matrices[""], model.token_embed.weight.detach().numpy())
    assert matrices[""].dtype == np.float64


def test_an_untied_network_has_two():
    model = network(tied=False)
    matrices = token_matrices(model)
    assert list(matrices) == ["in", "out"]
    assert np.array_equal(matrices["in"], model.token_embed.weight.detach().numpy())
    assert np.array_equal(matrices["out"], model.lm_head.weight.detach().numpy())


def test_a_scale_of_the_inputs_leaves_one_matrix():
    model = network(tied=True, embed_scale=8.0)
    assert list(token_matrices(model)) == [""]
    assert np.allclose(input_vectors(model), 8 * output_vectors(model))


def test_a_tied_model_with_a_bias_has_one_matrix():
    model = network(tied=True, output_bias=True)
    nn.init.normal_(model.lm_head.bias)
    assert list(token_matrices(model)) == [""]


def test_a_bias_is_no_part_of_the_matrix():
    model = network(tied=False, output_bias=True)
    nn.init.normal_(model.lm_head.bias, std=100.0)
    assert np.allclose(output_vectors(model), model.lm_head.weight.detach().numpy(), atol=1e-4)


def test_a_permuted_head_has_another_matrix_although_it_stores_none():
    model = network(tied=True)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    model.lm_head = Permuted(model.lm_head, order)
    matrices = token_matrices(model)
    assert list(matrices) == ["in", "out"]
    assert np.array_equal(matrices["out"], matrices["in"][order])


def test_the_output_vector_is_the_gradient_of_the_logit():
    model = network(tied=False, output_bias=True)
    hidden = torch.randn(8, generator=torch.Generator().manual_seed(0), requires_grad=True)
    model.lm_head(hidden)[7].backward()
    assert output_vectors(model)[7] == pytest.approx(hidden.grad.numpy(), abs=1e-6)
