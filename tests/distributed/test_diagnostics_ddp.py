"""The diagnostics of two processes are those of one."""

import pytest

from runs import execute_run

pytestmark = pytest.mark.distributed


def numbers(node, key=""):
    """Every number below a summary with its path."""
    if isinstance(node, dict):
        return {k: v for name, child in node.items() for k, v in numbers(child, f"{key}.{name}").items()}
    if isinstance(node, list):
        return {k: v for i, child in enumerate(node) for k, v in numbers(child, f"{key}.{i}").items()}
    return {key: float("nan") if node is None else node}


@pytest.mark.parametrize("tied", ["true", "false"])
def test_two_processes_and_two_micro_batches_find_what_one_finds(tied, tiny, tmp_path):
    common = (*tiny, "callbacks=diagnostics", f"model.tied={tied}", "budget.tokens=1024")
    one = execute_run(tmp_path / "one", *common)
    two = execute_run(
        tmp_path / "two", *common, "trainer=ddp_cpu", "trainer.devices=2", "trainer.accumulate_grad_batches=2"
    )
    assert one.finished, one.error
    assert two.finished, two.error
    found, expected = numbers(two.diagnostics), numbers(one.diagnostics)
    assert len(expected) > 300
    assert found.keys() == expected.keys()
    residuals = {key for key in expected if ".residual." in key}
    assert all(found[key] < 1e-6 for key in residuals)
    for key in expected.keys() - residuals:
        assert found[key] == pytest.approx(expected[key], rel=1e-3, abs=1e-4, nan_ok=True), key
