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


@pytest.mark.parametrize("jobs_per_gpu", [1, 2])
def test_jobs_share_a_gpu_as_asked(jobs_per_gpu, shell, tiny, tmp_path):
    settings = ("hydra/launcher=joblib", "parallel_jobs=2", f"jobs_per_gpu={jobs_per_gpu}", "trainer=gpu")
    one_gpu = {"CUDA_VISIBLE_DEVICES": "0"}
    done = shell("-m", "seed=0,1", *tiny, *settings, "budget.tokens=262144", env=one_gpu)
    assert done.returncode == 0, done.stderr
    waited = "waiting for 1 of the GPUs 0" in done.stdout
    assert waited is (jobs_per_gpu == 1)
