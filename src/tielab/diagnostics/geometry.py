"""The shape of the cloud of a matrix's rows: its ranks, its mean, its directions, its norms.

Pure functions. V rows, D width; sigma are singular values, lambda their squares. All compute in float64.
``weights`` (V,), such as token counts, weigh the rows; None: all the same.
"""

import torch
from torch import Tensor


def normalized(weights: Tensor | None, matrix: Tensor) -> Tensor:
    """Weights (V,) that sum to 1, in float64; equal ones for None."""
    if weights is None:
        return torch.full((len(matrix),), 1 / len(matrix), dtype=torch.float64, device=matrix.device)
    return weights.double() / weights.double().sum()


def mean_row(matrix: Tensor, weights: Tensor | None = None) -> Tensor:
    """The (weighted) mean of the rows, (D,) float64."""
    return normalized(weights, matrix) @ matrix.double()


def centred(matrix: Tensor, weights: Tensor | None = None) -> Tensor:
    """The rows minus their (weighted) mean, (V, D) float64."""
    return matrix.double() - mean_row(matrix, weights)


def spectrum(matrix: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Singular values, largest first, and right singular vectors (columns) of diag(sqrt(weights)) S.

    From the (D, D) Gram matrix in float64: values below 1e-8 of the largest are lost in its rounding.
    """
    rows = matrix.double() * normalized(weights, matrix).sqrt()[:, None]
    eigenvalues, vectors = torch.linalg.eigh(rows.T @ rows)
    return eigenvalues.clamp(min=0).sqrt().flip(0), vectors.flip(1)


def stable_rank(sigma: Tensor) -> float:
    """||S||_F^2 / ||S||_2^2 (Rudelson & Vershynin 2007)."""
    return float(sigma.square().sum() / sigma.max().square())


def effective_rank(sigma: Tensor) -> float:
    """exp of the entropy of sigma / sum sigma (Roy & Vetterli 2007)."""
    return float(torch.special.entr(sigma / sigma.sum()).sum().exp())


def participation_ratio(sigma: Tensor) -> float:
    """(sum lambda)^2 / sum lambda^2."""
    energies = sigma.square()
    return float(energies.sum().square() / energies.square().sum())


def mean_share(matrix: Tensor, weights: Tensor | None = None) -> float:
    """||mean_k S_k||^2 / mean_k ||S_k||^2: 1 if all rows are the same, 0 if they have no mean."""
    energy = normalized(weights, matrix) @ matrix.double().square().sum(dim=1)
    return float(mean_row(matrix, weights).square().sum() / energy)


def mean_pairwise_cosine(matrix: Tensor, weights: Tensor | None = None) -> float:
    """Mean cosine of two different rows, rows of zeros left out.

    (||sum_k w_k u_k||^2 - sum w^2) / (1 - sum w^2) with unit rows u and weights w that sum to 1; for equal
    weights (||sum_k u_k||^2 - V) / (V (V - 1)).
    """
    norms = matrix.double().norm(dim=1)
    kept = norms > 0
    w = normalized(weights, matrix)[kept]
    w = w / w.sum()
    resultant = w @ (matrix.double()[kept] / norms[kept, None])
    own = w.square().sum()
    return float((resultant.square().sum() - own) / (1 - own))


def isotropy(matrix: Tensor, weights: Tensor | None = None) -> float:
    """min_c Z(c) / max_c Z(c) with Z(c) = sum_k w_k exp(c . S_k): 1 if no direction is favoured.

    Mu & Viswanath 2018: c runs over the eigenvectors of S^T S, here in both directions, since the sign of
    an eigenvector is arbitrary and Z depends on it.
    """
    return isotropy_along(spectrum(matrix, weights)[1], matrix, weights)


def isotropy_along(directions: Tensor, matrix: Tensor, weights: Tensor | None = None) -> float:
    """The isotropy over the given directions (columns, (D, c)) and their opposites."""
    scores = directions.T @ matrix.double().T  # (c, V)
    log_w = normalized(weights, matrix).log()
    log_z = torch.cat([torch.logsumexp(sign * scores + log_w, dim=1) for sign in (1, -1)])
    return float((log_z.min() - log_z.max()).exp())


def norm_frequency_correlation(matrix: Tensor, counts: Tensor) -> float:
    """Spearman's rho of ||S_k|| and ln n_k, that is of their ranks; NaN if one of them is constant."""
    from scipy.stats import spearmanr

    norms, counts = matrix.double().norm(dim=1).cpu(), counts.cpu()
    if len(norms) < 2 or norms.min() == norms.max() or counts.min() == counts.max():
        return float("nan")
    return float(spearmanr(norms.numpy(), counts.numpy()).statistic)


def shape(matrix: Tensor, weights: Tensor | None = None) -> dict[str, float]:
    """Every quantity above that needs no counts, by name."""
    sigma, directions = spectrum(matrix, weights)
    return {
        "stable_rank": stable_rank(sigma),
        "effective_rank": effective_rank(sigma),
        "participation_ratio": participation_ratio(sigma),
        "mean_share": mean_share(matrix, weights),
        "mean_pairwise_cosine": mean_pairwise_cosine(matrix, weights),
        "isotropy": isotropy_along(directions, matrix, weights),
    }
