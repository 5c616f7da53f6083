"""A broken tie fails its job, says which two matrices, and leaves no perplexity; other jobs run on."""

import os

import pytest

from running import ROOT
from tielab.record import read_record

BREAKAGES = """
import copy

import lightning.pytorch as L
from torch import nn

from tielab.models.minigpt import MiniGPT


def other_head(model):
    head = nn.Linear(model.token_embed.embedding_dim, model.vocab_size, bias=False)
    head.weight = nn.Parameter(model.token_embed.weight.detach().clone())
    return head


class Swap(L.Callback):
    def __init__(self, step, tied):
        self.step, self.tied = step, tied

    def on_train_batch_end(self, trainer, task, *_):
        model = task.model
        if trainer.global_step != self.step or model.tied != self.tied:
            return
        if self.tied:
            model.lm_head = other_head(model)
        else:
            model.lm_head.weight = model.token_embed.weight


class CopiedHead(MiniGPT):
    def __init__(self, **settings):
        super().__init__(**settings)
        if self.tied:
            self.lm_head = other_head(self)
"""


@pytest.fixture
def breaking(tmp_path):
    """An environment in which ``tielab.breakages`` can be imported, as the config's targets must be."""
    (tmp_path / "breakages.py").write_text(BREAKAGES)
    (tmp_path / "sitecustomize.py").write_text(f"import tielab; tielab.__path__.append({str(tmp_path)!r})")
    return {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    }


def swap(step, tied):
    return (
        "+callbacks.swap._target_=tielab.breakages.Swap", f"+callbacks.swap.step={step}",
        f"+callbacks.swap.tied={str(tied).lower()}",
    )  # fmt: skip


@pytest.mark.parametrize(("tied", "step"), [(True, 3), (False, 20)])  # before and after a validation
def test_a_tie_broken_in_training_fails_its_job_of_a_sweep(tied, step, breaking, shell, tiny, tmp_path):
    done = shell("-m", "model.tied=true,false", *swap(step, tied), *tiny, env=breaking)
    assert done.returncode == 1, done.stdout + done.stderr
    (sweep,) = (tmp_path / "outputs" / "sweeps").iterdir()
    broken, other = (read_record(sweep / name) for name in (("0", "1") if tied else ("1", "0")))
    assert (other.status, other.tie_observed) == ("finished", not tied)
    assert (broken.status, broken.tied, broken.tie_observed) == ("failed", tied, not tied)
    assert broken.error["type"] == "BrokenTieError"
    assert "lm_head.weight and token_embed.weight" in broken.error["message"]
    assert broken.validation is None
    assert broken.best_validation is None
    assert "1 of 2 runs give numbers" in done.stdout
    assert "lm_head.weight and token_embed.weight" in done.stdout


def test_a_tie_broken_by_the_build_fails_before_the_training(breaking, shell, tiny, tmp_path):
    done = shell(*tiny, "model._target_=tielab.breakages.CopiedHead", env=breaking)
    assert done.returncode == 1, done.stderr
    record = read_record(next((tmp_path / "outputs" / "runs").iterdir()))
    assert (record.status, record.tie_observed) == ("failed", False)
    assert record.error["message"].startswith("after the build: model.tied=true, but lm_head.weight and")
    assert (record.validation, record.tokens_seen) == (None, 0)


@pytest.mark.distributed
def test_a_tie_broken_in_sharded_processes_fails(breaking, shell, tiny, tmp_path):
    done = shell(*tiny, *swap(3, True), "trainer=fsdp_cpu", "trainer.devices=2", env=breaking)
    assert done.returncode == 1, done.stderr
    record = read_record(next((tmp_path / "outputs" / "runs").iterdir()))
    assert (record.status, record.tie_observed, record.validation) == ("failed", False, None)
    assert "lm_head.weight and token_embed.weight" in record.error["message"]
