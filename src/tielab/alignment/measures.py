"""How alike two matrices are whose rows stand for the same tokens.

V rows, D width. A is (V, D_A) and B is (V, D_B); the widths may differ where a measure says so. Every
measure takes the column means out first: a direction that all tokens share says nothing about any token.
Pure numpy and scipy: no run, no file, no torch.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

NUM_FOLDS = 5
NUM_ROW_PAIRS = 200_000
NUM_NEIGHBORS = 10
RANK_TOLERANCE = 1e-5
"""Singular values below this share of the largest are rounding: weights are float32, and a factorised
table has fewer dimensions than columns."""
BLOCK_ROWS = 1024
"""Rows whose similarities to all others are held at a time."""
PAIRS_AT_A_TIME = 10_000


def alignment(a: Matrix, b: Matrix) -> dict[str, float | None]:
    """Every measure of ``MEASURES`` by name; None where it needs equal widths and they differ.

    The same two matrices give the same numbers: folds and row pairs are drawn with fixed seeds.

    Raises:
        ValueError: the numbers of rows differ, or there are fewer than ``least_rows``.
    """
    if len(a) != len(b):
        raise ValueError(f"{len(a)} and {len(b)} rows: both matrices need a row for each token")
    least = least_rows(max(a.shape[1], b.shape[1]))
    if len(a) < least:
        raise ValueError(f"{len(a)} rows are too few for width {a.shape[1]}: at least {least} are needed")
    a, b = centred(a), centred(b)
    return {name: measure(a, b) for name, measure in MEASURES.items()}


def least_rows(width: int) -> int:
    """How many rows the measures need: each fold's map is fitted to more rows than it has inputs."""
    return max(width * NUM_FOLDS // (NUM_FOLDS - 1), NUM_NEIGHBORS) + 2


def centred(matrix: Matrix) -> Matrix:
    """The matrix without its column means."""
    return np.asarray(matrix - matrix.mean(axis=0))


def row_cosines(a: Matrix, b: Matrix) -> Matrix:
    """Cosine of each row with its partner, shape (V,); 0 where a row is zero."""
    return np.asarray((unit_rows(a) * unit_rows(b)).sum(axis=1))


def unit_rows(matrix: Matrix) -> Matrix:
    """Each row divided by its length; a zero row stays zero."""
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return np.asarray(matrix / np.where(lengths > 0, lengths, 1.0))


def identity(a: Matrix, b: Matrix) -> float | None:
    """Mean row cosine as the matrices are; None if the widths differ. Chance 0."""
    return float(row_cosines(a, b).mean()) if a.shape == b.shape else None


def procrustes(a: Matrix, b: Matrix) -> float | None:
    """Mean row cosine after the rotation of A that brings it closest to B; None if the widths differ.

    Schönemann 1966; as in Lopardo et al. 2026, whose scores are not corrected for chance.
    """
    if a.shape != b.shape:
        return None
    from scipy.linalg import orthogonal_procrustes

    rotation, _ = orthogonal_procrustes(a, b)
    return float(row_cosines(a @ rotation, b).mean())


def linear_in_sample(a: Matrix, b: Matrix) -> float:
    """Mean row cosine of B with the least-squares linear map of A, on the rows the map was fitted to."""
    return float(row_cosines(a @ _linear_map(a, b), b).mean())


def linear_held_out(a: Matrix, b: Matrix) -> float:
    """Mean row cosine of B with a linear map of A, each row predicted by a map fitted to other rows.

    5 folds; the column means are those of the fitted rows too. Chance 0 at any size.
    """
    fold = np.random.default_rng(0).permutation(len(a)) % NUM_FOLDS
    cosines = []
    for left_out in range(NUM_FOLDS):
        fitted, held = fold != left_out, fold == left_out
        mean_a, mean_b = a[fitted].mean(axis=0), b[fitted].mean(axis=0)
        linear = _linear_map(a[fitted] - mean_a, b[fitted] - mean_b)
        cosines.append(row_cosines((a[held] - mean_a) @ linear, b[held] - mean_b))
    return float(np.concatenate(cosines).mean())


def _linear_map(a: Matrix, b: Matrix) -> Matrix:
    """The map M (D_A, D_B) of least ||A M - B||, the smallest one where several are."""
    # Through the D x D product: its eigenvalues are squares, which double precision has room for.
    inverse = np.linalg.pinv(a.T @ a, rcond=RANK_TOLERANCE**2, hermitian=True)
    return np.asarray(inverse @ (a.T @ b))


def pairwise_spearman(a: Matrix, b: Matrix) -> float:
    """Spearman's rho between the cosines of 200,000 random pairs of rows in A and in B. Chance 0.

    The statistic of Press & Wolf 2017, section 5; for any two widths.
    """
    from scipy.stats import spearmanr

    draw = np.random.default_rng(0)
    one = draw.integers(len(a), size=NUM_ROW_PAIRS)
    other = (one + draw.integers(1, len(a), size=NUM_ROW_PAIRS)) % len(a)
    return float(spearmanr(_cosines_of(a, one, other), _cosines_of(b, one, other)).statistic)


def _cosines_of(matrix: Matrix, one: Indices, other: Indices) -> Matrix:
    """Cosines of the rows ``one`` with the rows ``other`` of one matrix."""
    unit = unit_rows(matrix)
    starts = range(0, len(one), PAIRS_AT_A_TIME)
    parts = [slice(start, start + PAIRS_AT_A_TIME) for start in starts]
    return np.concatenate([np.einsum("kd,kd->k", unit[one[part]], unit[other[part]]) for part in parts])


def neighbor_overlap(a: Matrix, b: Matrix) -> float:
    """Mean share of a row's 10 nearest rows by cosine in A that are among its 10 in B, for any two widths."""
    shared = nearest_rows(a)[:, :, None] == nearest_rows(b)[:, None, :]
    return float(shared.sum(axis=(1, 2)).mean() / NUM_NEIGHBORS)


def nearest_rows(matrix: Matrix) -> Indices:
    """The numbers of the 10 rows nearest to each one by cosine, itself left out: (V, 10), in no order."""
    unit = unit_rows(matrix)
    nearest = []
    for start in range(0, len(unit), BLOCK_ROWS):
        similar = unit[start : start + BLOCK_ROWS] @ unit.T
        similar[np.arange(len(similar)), start + np.arange(len(similar))] = -np.inf
        nearest.append(np.argpartition(-similar, NUM_NEIGHBORS, axis=1)[:, :NUM_NEIGHBORS])
    return np.concatenate(nearest)


MEASURES: dict[str, Callable[[Matrix, Matrix], float | None]] = {
    "identity": identity,
    "procrustes": procrustes,
    "linear_in_sample": linear_in_sample,
    "linear_held_out": linear_held_out,
    "pairwise_spearman": pairwise_spearman,
    "neighbor_overlap": neighbor_overlap,
}
HEADLINE = "linear_held_out"
"""Needs neither equal bases nor a correction for chance."""


def gaussian_chance(measure: str, num_rows: int, width: int) -> float:
    """What two independent Gaussian matrices of this shape score, for width much less than num_rows.

    Procrustes: the singular values of B^T A follow the quarter circle, whose mean is 8 / (3 pi) of the
    root of the mean square. In-sample: the share D / V of every column lies in A's column space.
    """
    chances = {
        "procrustes": 8 / (3 * math.pi) * math.sqrt(width / num_rows),
        "linear_in_sample": math.sqrt(width / num_rows),
        "neighbor_overlap": NUM_NEIGHBORS / (num_rows - 1),
    }
    return chances.get(measure, 0.0)


def shuffled_chance(measure: str, pairs: list[tuple[Matrix, Matrix]], num_draws: int) -> float | None:
    """What the pairs score once the rows of B are shuffled: the mean over draws that take turns at them.

    Shuffling leaves both spectra and all row lengths as they are. Trained matrices have a few strong
    directions, and what a rotation finds in those by chance is not what ``gaussian_chance`` says. The
    other measures have one chance for all matrices, which shuffling would only blur.
    """
    if measure not in ("procrustes", "linear_in_sample"):
        return gaussian_chance(measure, len(pairs[0][0]), pairs[0][0].shape[1])
    drawn = []
    for number in range(num_draws):
        a, b = (centred(matrix) for matrix in pairs[number % len(pairs)])
        drawn.append(MEASURES[measure](a, b[np.random.default_rng(number).permutation(len(b))]))
    return mean_or_none(drawn)


def mean_or_none(values: list[float | None]) -> float | None:
    """The mean, or None if there is no value or one of them is not known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
