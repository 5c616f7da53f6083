"""The measures of alignment: known answers, chance at several sizes, and what must not matter."""

import numpy as np
import pytest

from tielab.alignment import measures
from tielab.alignment.measures import MEASURES, alignment, gaussian_chance, least_rows, shuffled_chance


def gaussian(num_rows, width, seed):
    return np.random.default_rng(seed).standard_normal((num_rows, width))


def rotation(width, seed=0):
    return np.linalg.qr(gaussian(width, width, seed))[0]


def test_a_matrix_is_wholly_aligned_with_itself():
    a = gaussian(200, 16, 0)
    assert alignment(a, a) == pytest.approx(dict.fromkeys(MEASURES, 1.0))


def test_a_shift_of_all_rows_and_a_scale_do_not_matter():
    a = gaussian(200, 16, 0)
    assert alignment(a, 7 * a + gaussian(1, 16, 1)) == pytest.approx(dict.fromkeys(MEASURES, 1.0))


def test_a_rotation_matters_to_identity_alone():
    a = gaussian(300, 16, 0)
    scores = alignment(a, a @ rotation(16))
    assert abs(scores.pop("identity")) < 0.3
    assert scores == pytest.approx(dict.fromkeys(scores, 1.0))


def test_a_linear_map_is_found_by_the_linear_measures_alone():
    a = gaussian(400, 16, 0)
    scores = alignment(a, a @ np.diag(np.geomspace(1, 30, 16)) @ rotation(16))
    assert scores["linear_in_sample"] == pytest.approx(1)
    assert scores["linear_held_out"] == pytest.approx(1)
    assert scores["procrustes"] < 0.9
    assert scores["pairwise_spearman"] < 0.9
    assert scores["neighbor_overlap"] < 0.9


def test_shuffled_rows_are_not_aligned():
    a = gaussian(600, 16, 0)
    scores = alignment(a, a[np.random.default_rng(1).permutation(600)])
    for name in MEASURES:
        assert scores[name] == pytest.approx(gaussian_chance(name, 600, 16), abs=0.03), name


@pytest.mark.parametrize(("num_rows", "width"), [(256, 32), (512, 64), (512, 128), (1024, 128)])
def test_chance_formulas_agree_with_simulation(num_rows, width):
    scores = alignment(gaussian(num_rows, width, 1), gaussian(num_rows, width, 2))
    for name in MEASURES:
        # Centring costs a row, and D is not much less than V in some.
        assert scores[name] == pytest.approx(gaussian_chance(name, num_rows, width), abs=0.02), name


def test_chance_is_what_was_measured_for_the_published_sizes():
    """V, D, Procrustes, in-sample: simulated by others."""
    for num_rows, width, rotated, mapped in [(2048, 128, 0.208, 0.246), (50280, 2048, 0.171, 0.202)]:
        assert gaussian_chance("procrustes", num_rows, width) == pytest.approx(rotated, abs=0.005)
        assert gaussian_chance("linear_in_sample", num_rows, width) == pytest.approx(mapped, abs=0.005)


def test_shuffling_measures_chance_where_the_formula_is_of_other_matrices():
    plain = gaussian(512, 64, 1), gaussian(512, 64, 2)
    spectrum = np.geomspace(1, 100, 64)  # a few strong directions, as after training
    strong = plain[0] * spectrum, plain[1] * spectrum
    formula = gaussian_chance("procrustes", 512, 64)
    assert shuffled_chance("procrustes", [plain], 3) == pytest.approx(formula, abs=0.01)
    measured = shuffled_chance("procrustes", [strong], 3)
    assert measured < formula - 0.05
    assert measured == pytest.approx(alignment(*strong)["procrustes"], abs=0.02)


@pytest.mark.parametrize("measure", MEASURES)
def test_chance_is_what_shuffled_rows_score(measure):
    """Also where it is a formula: of matrices that are alike, and far from Gaussian."""
    a = gaussian(400, 24, 1) * np.geomspace(1, 20, 24)
    b = a + gaussian(400, 24, 2)
    assert alignment(a, b)[measure] > 0.3
    shuffled = [alignment(a, b[np.random.default_rng(seed).permutation(400)])[measure] for seed in range(4)]
    assert shuffled_chance(measure, [(a, b)], 5) == pytest.approx(np.mean(shuffled), abs=0.03)


def test_held_out_chance_is_zero_where_in_sample_is_not():
    scores = alignment(gaussian(256, 128, 1), gaussian(256, 128, 2))
    assert abs(scores["linear_held_out"]) < 0.02
    assert scores["linear_in_sample"] > 0.65


def test_a_signal_under_noise_raises_every_measure():
    signal = gaussian(500, 16, 0)
    scores = alignment(signal + gaussian(500, 16, 1) / 2, signal + gaussian(500, 16, 2) / 2)
    for name in MEASURES:
        assert gaussian_chance(name, 500, 16) + 0.05 < scores[name] < 0.9, name


def test_different_widths_leave_out_what_needs_equal_ones():
    a = gaussian(300, 24, 0)
    scores = alignment(a, a[:, :12])
    assert scores["identity"] is None
    assert scores["procrustes"] is None
    assert scores["linear_held_out"] == pytest.approx(1)
    assert 0.2 < scores["pairwise_spearman"] < 1
    assert 0.1 < scores["neighbor_overlap"] < 1


def test_columns_that_are_rounding_are_not_fitted():
    """A table of rank 8 in 64 columns, float32: what is left of the other 56 directions is noise."""
    table = (gaussian(300, 8, 0) @ gaussian(8, 64, 1)).astype(np.float32).astype(np.float64)
    chance = alignment(table, gaussian(300, 64, 2))["linear_in_sample"]
    assert chance == pytest.approx(gaussian_chance("linear_in_sample", 300, 8), abs=0.03)


def test_nearest_rows_are_those_of_a_full_sort(monkeypatch):
    monkeypatch.setattr(measures, "BLOCK_ROWS", 7)
    a = gaussian(50, 4, 0)
    unit = a / np.linalg.norm(a, axis=1, keepdims=True)
    expected = np.argsort(-(unit @ unit.T - 9 * np.eye(50)), axis=1)[:, :10]
    assert (np.sort(measures.nearest_rows(a)) == np.sort(expected)).all()


def test_repeated_calls_give_the_same_numbers():
    a, b = gaussian(100, 8, 0), gaussian(100, 8, 1)
    assert alignment(a, b) == alignment(a, b)


def test_too_few_rows_are_refused():
    with pytest.raises(ValueError, match="41 rows are too few for width 32: at least 42"):
        alignment(gaussian(41, 32, 0), gaussian(41, 32, 1))
    assert alignment(gaussian(42, 32, 0), gaussian(42, 32, 1))
    assert least_rows(4) == 12
    with pytest.raises(ValueError, match="a row for each token"):
        alignment(gaussian(50, 4, 0), gaussian(51, 4, 0))
