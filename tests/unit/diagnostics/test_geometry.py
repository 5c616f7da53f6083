"""The formulas of the geometry, on matrices whose values are known."""

import math

import numpy as np
import pytest
import torch

from diagnostic_fits import NUM_USED, Fit
from tielab.diagnostics.embedding_geometry import EmbeddingGeometry, describe_rows
from tielab.diagnostics.geometry import (
    centred,
    effective_rank,
    isotropy,
    mean_pairwise_cosine,
    mean_share,
    norm_frequency_correlation,
    participation_ratio,
    shape,
    spectrum,
    stable_rank,
)

AXES = torch.eye(4)
CORNERS = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])


def random_rows(num_rows=40, width=6):
    return torch.randn(num_rows, width, generator=torch.Generator().manual_seed(0)) + 0.5


def test_ranks_of_equal_singular_values_are_their_number():
    sigma, _ = spectrum(AXES)
    assert stable_rank(sigma) == pytest.approx(4)
    assert effective_rank(sigma) == pytest.approx(4)
    assert participation_ratio(sigma) == pytest.approx(4)


def test_ranks_of_singular_values_3_1():
    sigma = torch.tensor([3.0, 1.0], dtype=torch.float64)
    assert stable_rank(sigma) == pytest.approx(10 / 9)
    assert effective_rank(sigma) == pytest.approx(math.exp(-0.75 * math.log(0.75) - 0.25 * math.log(0.25)))
    assert participation_ratio(sigma) == pytest.approx(100 / 82)


def test_a_matrix_of_rank_1_has_ranks_1():
    sigma, _ = spectrum(torch.outer(torch.arange(1.0, 9), torch.tensor([1.0, 2.0, 3.0])))
    assert stable_rank(sigma) == pytest.approx(1)
    assert effective_rank(sigma) == pytest.approx(1, abs=1e-6)
    assert participation_ratio(sigma) == pytest.approx(1)


def test_singular_values_are_those_of_torch():
    rows = random_rows().double()
    sigma, vectors = spectrum(rows)
    torch.testing.assert_close(sigma * len(rows) ** 0.5, torch.linalg.svdvals(rows))
    torch.testing.assert_close((rows @ vectors).norm(dim=0), torch.linalg.svdvals(rows))


def test_weighing_is_repeating():
    """Counts as weights give what each row written down as often as it occurs gives."""
    rows, counts = random_rows(5, 3), torch.tensor([1, 4, 2, 7, 3])
    repeated = rows.repeat_interleave(counts, dim=0)
    weighted, written_out = shape(rows, counts), shape(repeated)
    for name in ("stable_rank", "effective_rank", "participation_ratio", "mean_share", "isotropy"):
        assert weighted[name] == pytest.approx(written_out[name]), name
    units = rows.double() / rows.double().norm(dim=1, keepdim=True)
    pairs = [(i, j) for i in range(5) for j in range(5) if i != j]
    weight = [float(counts[i] * counts[j]) for i, j in pairs]
    expected = np.average([float(units[i] @ units[j]) for i, j in pairs], weights=weight)
    assert weighted["mean_pairwise_cosine"] == pytest.approx(expected)


def test_mean_share():
    assert mean_share(torch.ones(5, 3)) == pytest.approx(1)
    assert mean_share(CORNERS) == pytest.approx(0)
    assert mean_share(torch.tensor([[2.0, 0.0], [0.0, 2.0]])) == pytest.approx(0.5)
    assert mean_share(centred(random_rows())) == pytest.approx(0, abs=1e-12)


def test_mean_pairwise_cosine():
    assert mean_pairwise_cosine(AXES) == pytest.approx(0)
    assert mean_pairwise_cosine(torch.ones(5, 3)) == pytest.approx(1)
    assert mean_pairwise_cosine(CORNERS) == pytest.approx(-1 / 3)
    assert mean_pairwise_cosine(torch.cat([CORNERS, torch.zeros(3, 2)])) == pytest.approx(-1 / 3)
    rows = random_rows().double()
    cosines = torch.nn.functional.cosine_similarity(rows[:, None], rows[None], dim=-1)
    others = ~torch.eye(len(rows), dtype=torch.bool)
    assert mean_pairwise_cosine(rows) == pytest.approx(float(cosines[others].mean()))


def test_isotropy():
    assert isotropy(CORNERS) == pytest.approx(1)
    one_sided = torch.tensor([[2.0, 0.0], [2.0, 0.0]])  # Z: e^2, e^-2 along it, 1 across
    assert isotropy(one_sided) == pytest.approx(math.exp(-4))
    rows = random_rows()
    assert isotropy(rows) == pytest.approx(isotropy(-rows))
    assert isotropy(100 * rows) >= 0  # exp would overflow
    assert isotropy(centred(rows)) > isotropy(rows)


def test_norms_that_rise_with_the_counts():
    rows = torch.arange(1.0, 7)[:, None] * torch.ones(3)
    counts = torch.tensor([1, 2, 4, 8, 16, 1000])
    assert norm_frequency_correlation(rows, counts) == pytest.approx(1)
    assert norm_frequency_correlation(rows, counts.flip(0)) == pytest.approx(-1)
    assert math.isnan(norm_frequency_correlation(torch.ones(6, 3), counts))


def test_rows_that_are_not_finite_have_no_geometry():
    rows = random_rows()
    rows[3, 2] = math.inf
    found = describe_rows(rows, torch.arange(1, 41), "embedding")
    assert found.keys() == describe_rows(random_rows(), torch.arange(1, 41), "embedding").keys()
    assert all(math.isnan(value) for (value,) in found.values())


@pytest.mark.parametrize("tied", [True, False])
def test_unused_rows_are_left_out_and_a_second_matrix_is_measured_too(tied):
    diagnostic = EmbeddingGeometry()
    fit = Fit([diagnostic], tied=tied, num_validations=2)
    used = np.bincount(fit.data.prepared.train.tokens, minlength=64) > 0
    assert used.sum() == NUM_USED
    rows = fit.model.token_embed.weight.detach()[torch.from_numpy(used)]
    values = fit.values("geometry/embedding_stable_rank")
    assert list(values) == [0, 3, 6]
    assert values[6] == pytest.approx(shape(rows)["stable_rank"])
    assert bool(fit.values("geometry/head_stable_rank")) is not tied
