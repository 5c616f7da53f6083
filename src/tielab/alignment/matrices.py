"""The token matrices of trained runs, and how often each token was there to learn from.

V vocabulary, D width. What is compared is what the network does with a token, not how it is stored: the
vector that token k enters with, and the vector whose product with the last hidden state is token k's logit.
"""

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tielab.alignment.measures import Matrix, least_rows
from tielab.alignment.runs import initial_seed
from tielab.data.budget import count_tokens
from tielab.data.prepare import Prepared, prepare
from tielab.errors import RequestError
from tielab.models.minigpt import MiniGPT
from tielab.record import RUN_CONFIG_NAME
from tielab.report.arms import arm_of
from tielab.report.collect import CollectedRun
from tielab.sample import load_run
from tielab.trust import check_address, is_cache_in_use, read_run_yaml

Rows = npt.NDArray[np.bool_]
ONE_MATRIX, INPUT, OUTPUT = "", "in", "out"
"""Ends of a network. One whose ends read the same numbers has a single matrix."""


@torch.no_grad()
def input_vectors(model: MiniGPT) -> Matrix:
    """What each token enters the first block with, before positions: (V, D)."""
    ids = torch.arange(model.vocab_size)
    return _as_matrix(model.look_up(ids) * model.embed_scale)


@torch.no_grad()
def output_vectors(model: MiniGPT) -> Matrix:
    """The gradient of each token's logit with respect to the final hidden state: (V, D).

    The head is affine in that state, so scoring the unit vectors and taking out what zero scores gives it,
    whatever maps, permutations or biases lie between; in double precision, in which a bias leaves no trace.
    """
    double = copy.deepcopy(model).double()
    width = model.position_embed.embedding_dim
    states = torch.cat([torch.eye(width), torch.zeros(1, width)]).double()
    scores = double.logits(states)  # (D + 1, V)
    return _as_matrix((scores[:-1] - scores[-1]).T)


def _as_matrix(tensor: torch.Tensor) -> Matrix:
    return np.ascontiguousarray(tensor.double().numpy())


def token_matrices(model: MiniGPT) -> dict[str, Matrix]:
    """The matrices of a network by their end; one alone if both ends read the same numbers.

    Observed, not configured: what a run ended with is what is compared.
    """
    inputs, outputs = input_vectors(model), output_vectors(model)
    if np.allclose(inputs, model.embed_scale * outputs, rtol=1e-5, atol=0):
        return {ONE_MATRIX: outputs}
    return {INPUT: inputs, OUTPUT: outputs}


@dataclass(frozen=True)
class TokenRun:
    """A trained run with its matrices, each cut to the rows that are compared."""

    folder: Path
    arm: str
    initial_seed: int
    """Of the initial weights."""
    matrices: dict[str, Matrix]


@dataclass(frozen=True)
class TokenRuns:
    """All runs of a request, their matrices on the same rows."""

    runs: dict[Path, TokenRun]
    num_rows: int
    vocab_size: int


def load_token_runs(runs: list[CollectedRun], checkpoint: str, min_count: int) -> TokenRuns:
    """The matrices of runs, on the rows of the tokens that each run's training text holds often enough.

    Args:
        checkpoint: ``best`` or ``last``.
        min_count: fewest occurrences; 0 takes every row and reads no text.

    Raises:
        RequestError: a run has no such checkpoint, another tokenizer, weights that are no numbers, or its
            text is gone; or too few rows are left.
    """
    loaded: dict[Path, TokenRun] = {}
    hashes: dict[Path, str] = {}
    for run in runs:
        if run.folder not in loaded:
            model, tokenizer = load_run(run.folder, checkpoint)
            hashes[run.folder] = tokenizer.hash
            _check_same_tokenizer(hashes)
            loaded[run.folder] = _token_run(run, model)
    kept = frequent_rows(runs, tokenizer.vocab_size, min_count)
    cut = {folder: _with_rows(run, kept) for folder, run in loaded.items()}
    _check_rows(cut, int(kept.sum()), min_count)
    return TokenRuns(cut, int(kept.sum()), len(kept))


def _token_run(run: CollectedRun, model: MiniGPT) -> TokenRun:
    matrices = token_matrices(model)
    _check_numbers(matrices, run.folder)
    return TokenRun(run.folder, arm_of(run), initial_seed(run.record), matrices)


COUNTED_KEYS = ("corpus", "paths", "document", "text_key", "url", "tokenizer", "cache_dir")
"""Of the data config: what the prepared tokens depend on, and where they are kept."""


def frequent_rows(runs: list[CollectedRun], vocab_size: int, min_count: int) -> Rows:
    """Whether each id occurs ``min_count`` times or more in every run's training text: (V,).

    Raises:
        RequestError: a text cannot be had, or is not the one its run was trained on.
    """
    kept = np.ones(vocab_size, dtype=bool)
    prepared: dict[str, Prepared] = {}
    for run in runs if min_count > 0 else []:
        config = read_run_yaml(run.folder / RUN_CONFIG_NAME)["data"]
        key = json.dumps({name: config[name] for name in COUNTED_KEYS})
        if key not in prepared:
            prepared[key] = _prepared_text(run, config)
        _check_same_text(run, prepared[key])
        tokens = prepared[key].train.tokens[: config.get("train_tokens")]
        kept &= count_tokens(tokens, vocab_size) >= min_count
    return kept


def _prepared_text(run: CollectedRun, config: dict[str, Any]) -> Prepared:
    place = config["cache_dir"]
    if not is_cache_in_use(place):
        raise RequestError(
            f"{run.folder} would write its tokens to data.cache_dir={place}, which is not in use here; "
            f"set TIELAB_CACHE={place} if it may, or give --min-count 0"
        )
    check_address(config, run.folder / RUN_CONFIG_NAME)
    return prepare(config)


def _check_same_text(run: CollectedRun, prepared: Prepared) -> None:
    found, trained_on = prepared.corpus_hash, run.record.data.get("corpus_hash")
    if found != trained_on:
        raise RequestError(
            f"{run.folder} was trained on text with corpus_hash {trained_on}, found {found}; "
            "put the old text back, or give --min-count 0 to compare all rows"
        )


def check_same_ends(runs: list[TokenRun]) -> None:
    """Raise RequestError unless all runs of one arm have one matrix, or all have two."""
    for run in runs[1:]:
        if run.matrices.keys() != runs[0].matrices.keys():
            one, two = (
                f"{r.folder} has {'two matrices' if len(r.matrices) > 1 else 'one matrix'}"
                for r in (runs[0], run)
            )
            raise RequestError(f"{one}, {two}: one was split already; compare with --checkpoint last")


def _with_rows(run: TokenRun, kept: Rows) -> TokenRun:
    matrices = {end: matrix[kept] for end, matrix in run.matrices.items()}
    return TokenRun(run.folder, run.arm, run.initial_seed, matrices)


def _check_same_tokenizer(hashes: dict[Path, str]) -> None:
    (first, one), *_, (last, other) = [*hashes.items(), *hashes.items()]
    if one != other:
        raise RequestError(
            f"{first} has tokenizer {one[:16]}, {last} has {other[:16]}: their rows are other tokens; "
            "compare runs of one tokenizer"
        )


def _check_numbers(matrices: dict[str, Matrix], folder: Path) -> None:
    for end, matrix in matrices.items():
        name = f"{end or 'token'} matrix"
        if not np.isfinite(matrix).all():
            raise RequestError(
                f"{folder} diverged: its {name} holds values that are no numbers; name another run"
            )
        if (matrix == matrix[0]).all():
            raise RequestError(f"{folder}: all rows of its {name} are equal; name a run that has trained it")


def _check_rows(runs: dict[Path, TokenRun], num_rows: int, min_count: int) -> None:
    width = max(matrix.shape[1] for run in runs.values() for matrix in run.matrices.values())
    if num_rows < least_rows(width):
        raise RequestError(
            f"--min-count {min_count} leaves {num_rows} rows, width {width} needs {least_rows(width)}; "
            "give a smaller --min-count, or compare runs with a larger vocabulary"
        )
