"""The tie and its guard: worked examples, shapes that cannot be tied, broken ties."""

import pytest
import torch
from torch import nn

from tielab.models.minigpt import MiniGPT
from tielab.models.tying import TiedHead, tie_problem


@pytest.mark.parametrize(
    ("table", "hidden", "logits", "winner"),
    [
        (
            [[0.2, -0.5, 0.8], [0.3, -0.4, 0.7], [-0.9, 0.1, 0.2], [0.6, 0.3, -0.5]],
            [0.5, 0.2, -0.3],
            [-0.24, -0.14, -0.49, 0.51],
            3,
        ),
        ([[0.2, 0.8], [0.5, 0.3], [0.9, 0.1]], [0.3, 0.7], [0.62, 0.36, 0.34], 0),
    ],
)
def test_worked_examples(table, hidden, logits, winner):
    matrix = torch.tensor(table)
    embedding = nn.Embedding.from_pretrained(matrix, freeze=False)
    found = TiedHead(embedding, *matrix.shape)(torch.tensor(hidden))
    torch.testing.assert_close(found, torch.tensor(logits))
    assert found.argmax() == winner


def test_softmax_of_the_worked_example():
    found = torch.tensor([-0.24, -0.14, -0.49, 0.51]).softmax(0)
    torch.testing.assert_close(found, torch.tensor([0.2000, 0.2210, 0.1557, 0.4233]), atol=5e-5, rtol=0)


@pytest.mark.parametrize("shape", [(65, 32), (64, 16)])
def test_other_shapes_cannot_be_tied(shape):
    with pytest.raises(ValueError, match=r"embedding of shape \(64, 32\) to a head of shape"):
        TiedHead(nn.Embedding(64, 32), *shape)


def model(tied):
    return MiniGPT(64, 8, 32, 1, tied=tied)


def problem(m, tied, optimized=None):
    return tie_problem(m, tied, optimized)


@pytest.mark.parametrize("tied", [True, False])
def test_a_right_model_has_no_problem(tied):
    m = model(tied)
    assert problem(m, tied) is None
    assert problem(m, tied, list(m.parameters())) is None


def test_equal_values_do_not_make_a_tie():
    m = model(True)
    m.lm_head = nn.Linear(32, 64, bias=False)
    m.lm_head.weight = nn.Parameter(m.token_embed.weight)  # one storage, two parameters
    assert "two parameters" in problem(m, True)


def test_an_untied_model_that_shares_is_found():
    for shared in (lambda w: w, lambda w: nn.Parameter(w.data)):
        m = model(False)
        m.lm_head.weight = shared(m.token_embed.weight)
        assert "share one storage" in problem(m, False)


@pytest.mark.parametrize("tied", [True, False])
def test_optimizer_entries_are_counted(tied):
    m = model(tied)
    twice = [*m.parameters(), m.token_embed.weight]
    assert "2 optimizer entries" in problem(m, tied, twice)
    without = [p for p in m.parameters() if p is not m.token_embed.weight]
    assert "0 optimizer entries" in problem(m, tied, without)
