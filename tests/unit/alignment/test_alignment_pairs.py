"""Which matrices meet which, and on which rows; without any training."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from tielab.alignment import matrices, sweep
from tielab.alignment.matrices import TokenRun, check_same_ends, frequent_rows
from tielab.alignment.results import Plan
from tielab.alignment.runs import repeats
from tielab.errors import RequestError
from tielab.record import Record
from tielab.report.collect import CollectedRun


def record(tied=True, seed=0, model_seed=None, **model):
    model |= {"tied": tied, "seed": seed if model_seed is None else model_seed}
    config = {"model": model, "data": {"seed": seed}, "seed": seed}
    return Record("r", "finished", config, "h", tied=tied, seed=seed, data={"corpus_hash": "c"})


def token_run(arm, seed, *ends):
    values = {end: np.full((1, 1), float(f"{seed}.{number}")) for number, end in enumerate(ends, start=1)}
    return TokenRun(Path(f"{arm}{seed}"), arm, seed, values)


def numbers(pairs):
    return [(one.item(), other.item()) for one, other in pairs]


def test_a_repetition_differs_in_its_seeds_alone_and_in_that_of_the_weights_for_sure():
    assert repeats(record(seed=0), record(seed=1))
    assert repeats(record(seed=0), record(seed=0, model_seed=1))
    assert not repeats(record(seed=0), record(seed=0))
    assert not repeats(record(seed=0), record(seed=1, model_seed=0))
    assert not repeats(record(seed=0), record(seed=1, tied=False))
    assert not repeats(record(seed=0, embed_dim=32), record(seed=1, embed_dim=64))


def test_runs_that_began_alike_do_not_meet():
    """Seed 0 twice, as of runs whose data seed alone differs."""
    plan = Plan()
    arm = [token_run("untied", seed, "in", "out") for seed in (0, 0, 3)]
    sweep._add_within(plan, arm)
    compared = {kind.same_run: numbers(pairs) for kind, pairs in plan.compared.items()}
    assert compared == {
        True: [(0.1, 0.2), (0.1, 0.2), (3.1, 3.2)],
        False: [(0.1, 3.2), (0.1, 3.2), (3.1, 0.2), (3.1, 0.2)],
    }
    repeated = {str(name): numbers(pairs) for name, pairs in plan.repeated.items()}
    assert repeated == {"untied in": [(0.1, 3.1), (0.1, 3.1)], "untied out": [(0.2, 3.2), (0.2, 3.2)]}


def test_runs_of_one_arm_that_are_split_and_not_split_are_refused():
    runs = [token_run("tied, untie_at 0.667", 0, "in", "out"), token_run("tied, untie_at 0.667", 1, "")]
    with pytest.raises(RequestError, match=r"has two matrices, .* has one matrix: one was split already"):
        check_same_ends(runs)


def test_two_arms_meet_across_seeds():
    plan = Plan()
    tied = [token_run("tied", seed, "") for seed in (0, 1)]
    untied = [token_run("untied", seed, "in", "out") for seed in (0, 1)]
    sweep._add(plan, untied, "out", tied, "")
    ((kind, pairs),) = plan.compared.items()
    assert (str(kind.first), str(kind.second), kind.same_run) == ("untied out", "tied", False)
    assert numbers(pairs) == [(0.2, 1.1), (1.2, 0.1)]


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """Makes a run whose training text is given as ids."""
    prepared = {}

    def prepare(config):
        return prepared[config["paths"][0]]

    monkeypatch.setattr(matrices, "prepare", prepare)
    monkeypatch.setattr(matrices, "read_run_yaml", lambda path: yaml.safe_load(path.read_text()))

    def make(name, tokens, train_tokens=None, corpus_hash="c"):
        folder = tmp_path / name
        folder.mkdir()
        data = {
            "corpus": "text", "paths": [name], "document": None, "text_key": "text", "url": None,
            "tokenizer": {}, "cache_dir": "cache", "train_tokens": train_tokens,
        }  # fmt: skip
        (folder / "run.yaml").write_text(json.dumps({"data": data}))

        class Text:
            class train:  # noqa: N801
                pass

        Text.corpus_hash, Text.train.tokens = corpus_hash, np.array(tokens, dtype=np.uint16)
        prepared[name] = Text
        return CollectedRun(folder, record())

    return make


def test_a_row_is_frequent_if_it_is_in_both_texts(texts):
    one, other = texts("a", [0, 0, 1, 1, 2, 3]), texts("b", [0, 0, 2, 2, 2, 3, 3])
    assert frequent_rows([one], 5, 2).tolist() == [True, True, False, False, False]
    assert frequent_rows([one, other], 5, 2).tolist() == [True, False, False, False, False]
    assert frequent_rows([one, other], 5, 1).tolist() == [True, False, True, True, False]
    assert frequent_rows([one, other], 5, 0).tolist() == [True] * 5


def test_only_the_tokens_trained_on_are_counted(texts):
    assert frequent_rows([texts("a", [0, 1, 1, 0], train_tokens=3)], 2, 2).tolist() == [False, True]


def test_another_text_is_refused(texts):
    with pytest.raises(RequestError, match=r"corpus_hash c, found d; put the old text back"):
        frequent_rows([texts("a", [0], corpus_hash="d")], 2, 1)
