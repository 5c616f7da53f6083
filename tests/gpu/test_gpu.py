"""The prepared checks for a machine with a GPU; skipped elsewhere. Run: pytest tests/gpu."""

import pytest
import torch

from tielab.record import read_record

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine"),
]


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("trainer", ["gpu", "fsdp"])
def test_one_gpu(trainer, precision, shell, tiny, tmp_path):
    settings = (f"trainer={trainer}", f"trainer.precision={precision}")
    done = shell("-m", "model.tied=true,false", *tiny, *settings)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "outputs" / "sweeps").iterdir()
    tied, untied = (read_record(folder / job) for job in "01")
    assert tied.device == untied.device == torch.cuda.get_device_name()
    assert (tied.tie_observed, untied.tie_observed) == (True, False)
    assert tied.body_hash == untied.body_hash
    assert tied.peak_memory_bytes < untied.peak_memory_bytes
    assert abs(tied.initial_loss - 4.16) < 0.3


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
@pytest.mark.parametrize("strategy", ["trainer=ddp", "trainer=fsdp"])
def test_two_gpus_have_the_losses_of_one(strategy, shell, tiny, tmp_path):
    for name, overrides in (("one", ("trainer=gpu",)), ("two", (strategy, "trainer.devices=2"))):
        assert shell(*tiny, *overrides, f"output_dir={name}").returncode == 0
    one, two = (read_record(next((tmp_path / name / "runs").iterdir())) for name in ("one", "two"))
    assert two.num_processes == 2
    assert one.train_loss == pytest.approx(two.train_loss, abs=1e-3)
