"""Two processes train every kind of scheme that they may as one process does."""

import pandas as pd
import pytest

from runs import execute_run

pytestmark = pytest.mark.distributed


def losses(folder):
    table = pd.read_csv(folder / "metrics.csv", float_precision="round_trip")
    return table["train/loss"].dropna().to_list() + table["val/loss"].dropna().to_list()


@pytest.mark.parametrize(
    ("option", "trainer"),
    [
        ("permuted", "ddp_cpu"),  # a buffer of ids
        ("rotated", "ddp_cpu"),  # a buffer of numbers
        ("tied_linear", "ddp_cpu"),  # a penalty beside the loss
        ("factorised", "ddp_cpu"),  # a second shared factor
        ("frozen", "ddp_cpu"),  # a parameter without gradient
        ("untied_separate", "fsdp_cpu"),  # more groups of parameters
    ],
)
def test_two_processes_have_the_losses_of_one(option, trainer, tiny, tmp_path):
    short = (*tiny, "budget.tokens=1024", "trainer.log_every_n_steps=1", f"tying={option}")
    one = execute_run(tmp_path / "one", *short)
    two = execute_run(tmp_path / "two", *short, f"trainer={trainer}", "trainer.devices=2")
    assert (one.num_processes, two.num_processes) == (1, 2), two.error
    assert one.tie_observed is two.tie_observed is one.tied
    assert one.parameters == two.parameters
    assert losses(tmp_path / "one") == pytest.approx(losses(tmp_path / "two"), abs=1e-5)
