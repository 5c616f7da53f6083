"""The diagnostics on a GPU: the same weights bit for bit. Run: pytest tests/gpu."""

import pytest
import torch

from tielab.record import read_record

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine"),
]


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true"])
@pytest.mark.parametrize("tied", ["true", "false"])
def test_one_gpu_trains_the_same_with_them(tied, precision, shell, tiny, tmp_path):
    common = (*tiny, "trainer=gpu", f"model.tied={tied}", f"trainer.precision={precision}")
    for name in ("default", "diagnostics"):
        done = shell(*common, f"callbacks={name}", f"output_dir={name}")
        assert done.returncode == 0, done.stderr
    plain, watched = (
        read_record(next((tmp_path / n / "runs").iterdir())) for n in ("default", "diagnostics")
    )
    assert watched.weights_hash == plain.weights_hash
    assert 0 < watched.diagnostics["path_gradients"]["share_l2"]["mean"] < 1
