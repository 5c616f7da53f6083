"""Runs sharded over two processes: the losses, weights and checkpoints are those of one."""

import pandas as pd
import pytest
import torch

from runs import execute_run
from tielab.checkpoint import WholeCheckpointIO
from tielab.models.accounting import tensors_hash

pytestmark = pytest.mark.distributed

ONE = ("trainer=cpu",)
FSDP = ("trainer=fsdp_cpu", "trainer.devices=2")
SPLIT = (*FSDP, "trainer.tensor_parallel_size=2")
MIDWAY = (
    "+callbacks.midway._target_=lightning.pytorch.callbacks.ModelCheckpoint",
    "+callbacks.midway.every_n_train_steps=20", "+callbacks.midway.filename=midway",
    "+callbacks.midway.save_top_k=-1",
)  # fmt: skip
HARDER = ("model.output_bias=true", "optimizer.weight_decay=0.01", "schedule.warmup_fraction=0.2")


@pytest.fixture(scope="module")
def finished(tiny, tmp_path_factory):
    """Folder and record of a finished run; each is trained once."""
    made = {}

    def get(tied, *trainer, start=None):
        key = tied, trainer, start
        if key not in made:
            folder = tmp_path_factory.mktemp("runs") / "run"
            resume = (f"resume_from={start}",) if start else ()
            arm = f"model.tied={str(tied).lower()}"
            record = execute_run(folder, *tiny, *MIDWAY, *HARDER, arm, *trainer, *resume)
            assert record.finished, record.error
            made[key] = folder, record
        return made[key]

    return get


def column(folder, name):
    return pd.read_csv(folder / "metrics.csv", float_precision="round_trip")[name].dropna().to_list()


def state(folder, name="last"):
    path = folder / "checkpoints" / f"{name}.ckpt"
    return torch.load(path, weights_only=True)["state_dict"]


@pytest.mark.parametrize("trainer", [FSDP, SPLIT], ids=["fsdp", "tensor_parallel"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_sharded_run_equals_one_process(tied, trainer, finished):
    (plain, one), (sharded, two) = finished(tied, *ONE), finished(tied, *trainer)
    assert (one.num_processes, two.num_processes) == (1, 2)
    assert one.tie_observed is two.tie_observed is tied
    for name in ("train/loss", "val/loss"):
        assert column(plain, name) == pytest.approx(column(sharded, name), abs=1e-5), name
    assert column(plain, "gradient_norm") == pytest.approx(column(sharded, "gradient_norm"), rel=1e-4)
    for name in ("parameters", "flops_per_token", "tokens_seen", "body_hash", "batch_hash", "num_steps"):
        assert getattr(one, name) == getattr(two, name), name
    for name in ("num_tokens", "num_bytes", "content_hash", "tokens_seen"):
        assert one.validation[name] == two.validation[name], name


@pytest.mark.parametrize("trainer", [FSDP, SPLIT], ids=["fsdp", "tensor_parallel"])
@pytest.mark.parametrize("tied", [True, False])
def test_its_checkpoint_is_one_file_with_the_whole_weights(tied, trainer, finished):
    folder, record = finished(tied, *trainer)
    weights = state(folder)
    assert weights.keys() == state(finished(tied, *ONE)[0]).keys()
    assert ("model.lm_head.weight" in weights) is not tied
    named = ((name.removeprefix("model."), tensor) for name, tensor in weights.items())
    assert tensors_hash(named) == record.weights_hash
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == [
        "best.ckpt", "last.ckpt", "midway.ckpt",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tied", "before", "after"),
    [(True, FSDP, FSDP), (True, FSDP, ONE), (False, ONE, FSDP), (True, ONE, SPLIT), (False, SPLIT, FSDP)],
)
def test_a_run_goes_on_under_another_strategy(tied, before, after, finished):
    start = finished(tied, *before)[0] / "checkpoints" / "midway.ckpt"
    whole, _ = finished(tied, *before)
    resumed, record = finished(tied, *after, start=start)
    assert column(resumed, "step")[0] == 30  # the first row after step 20
    assert record.tokens_seen == 4096
    assert record.tie_observed is tied
    assert column(resumed, "val/loss")[-1] == pytest.approx(column(whole, "val/loss")[-1], abs=1e-5)
    assert column(resumed, "train/loss")[-1] == pytest.approx(column(whole, "train/loss")[-1], abs=1e-5)
    for name, tensor in state(whole).items():
        torch.testing.assert_close(state(resumed)[name], tensor, rtol=0, atol=1e-3)
        assert (state(resumed)[name] - tensor).abs().mean() < 1e-5


def test_processes_that_hold_one_model_drop_the_same_values_out(tiny, tmp_path):
    dropout = (*tiny, "model.dropout=0.5", "budget.tokens=512", "trainer.log_every_n_steps=1")
    for name, trainer in (("one", ONE), ("split", SPLIT)):
        assert execute_run(tmp_path / name, *dropout, *trainer).finished
    one, split = (column(tmp_path / name, "train/loss") for name in ("one", "split"))
    assert len(one) == 4
    assert one == pytest.approx(split, abs=1e-5)


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_other_precisions(precision, tiny, tmp_path):
    record = execute_run(tmp_path / "run", *tiny, *FSDP, f"trainer.precision={precision}")
    assert record.finished, record.error
    assert record.num_processes == 2
    assert record.tie_observed is True
    assert record.validation["perplexity"] < 64


def test_one_process_and_checkpoints_written_whole(tiny, tmp_path, monkeypatch):
    """``launch=inline``, so that it can be watched."""
    written = []
    save = WholeCheckpointIO.save_checkpoint

    def watched(self, checkpoint, path, storage_options=None):
        written.append(str(path).rpartition("/")[2])
        save(self, checkpoint, path, storage_options)

    monkeypatch.setattr(WholeCheckpointIO, "save_checkpoint", watched)
    record = execute_run(tmp_path / "run", *tiny, "trainer=fsdp_cpu", "launch=inline")
    assert record.finished, record.error
    assert record.num_processes == 1
    assert set(written) == {"best.ckpt", "last.ckpt"}
