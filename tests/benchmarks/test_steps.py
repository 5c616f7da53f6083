"""Roofline, head and growth: the whole of each on tiny shapes, and what is counted instead of timed."""

import json
import sys

import pytest
import torch
from benchmarks.steps import TINY, Shape, Training, peak_bytes, settings

from benchmarks import growth, head, roofline
from running import config_of


@pytest.fixture(autouse=True)
def same_torch():
    """Threads and determinism as they were before a benchmark set them."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


def rows_of(module, out, monkeypatch):
    """What ``python -m benchmarks.NAME --quick`` writes."""
    name = module.__name__.rpartition(".")[2]
    monkeypatch.setattr(sys, "argv", [name, "--quick", "--out", str(out)])
    module.main()
    return json.loads((out / f"{name}.json").read_text())["rows"]


def test_roofline(tmp_path, monkeypatch):
    rows = rows_of(roofline, tmp_path, monkeypatch)
    assert [row["precision"] for row in rows] == ["32-true", "bf16-mixed"]
    for row in rows:
        # 32 tokens, three times: 2 per weight (2 blocks of 8192, the head's 2048), and 4 L D T.
        assert row["flops_per_step"] == 3 * (2 * (2 * 8192 + 2048) + 4 * 2 * 32 * 16) * 32
        best = row["all_products_flops_per_second"][row["best_product"]]
        assert best == max(row["all_products_flops_per_second"].values())
        assert row["share_of_limit"]["n"] == 2


def test_head(tmp_path, monkeypatch):
    rows = rows_of(head, tmp_path, monkeypatch)
    names = [
        "logits",
        "ours",
        *(["torch chunked"] if hasattr(torch.nn.functional, "linear_cross_entropy") else []),
    ]
    assert [row["head"] for row in rows] == 2 * names
    assert [row["peak_memory_to_logits"] for row in rows if row["head"] == "logits"] == [1.0, 1.0]
    for row in rows:
        limit = 1e-5 if row["precision"] == "32-true" else 2e-2
        assert row["largest_gradient_difference"] <= limit, row


def test_our_head_holds_chunks_of_the_logits():
    case = head.Case((1024, 32768, 4), "32-true")
    counted = {name: peak_bytes(lambda run=run: case.run(run)) for name, run in head.heads().items()}
    chunk, everything = 4 * 2**24, 4 * 1024 * 32768
    gradients = 4 * 4 * (1024 + 32768)
    assert counted["logits"] >= 2 * everything
    assert counted["ours"] <= 3 * chunk + 2 * gradients


def test_bytes_at_once_are_counted():
    def hold():
        first = torch.ones(1000)
        second = first + 1  # 8000 bytes at once
        del first
        third = second + 1
        del second
        return third

    assert 8000 <= peak_bytes(hold) < 8100  # and some for the 1
    assert peak_bytes(lambda: [torch.ones(1000) for _ in range(3)]) == 12000


def test_growth(tmp_path, monkeypatch):
    rows = rows_of(growth, tmp_path, monkeypatch)
    assert {row["grows"] for row in rows} == {"vocab_size", "embed_dim", "block_size"}
    for tied, untied in zip(rows[::2], rows[1::2], strict=True):
        assert (tied["arm"], untied["arm"]) == ("tied", "untied")
        assert untied["parameters"] - tied["parameters"] == tied["vocab_size"] * tied["embed_dim"]
        assert untied["state_bytes"] - tied["state_bytes"] == 16 * tied["vocab_size"] * tied["embed_dim"]
        assert untied["flops_per_step"] == tied["flops_per_step"]
    assert {path.name for path in tmp_path.iterdir()} == {"growth.json", "growth.png", "growth.svg"}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    "shape",
    [
        Shape(512, 64, 2, 2, 256, 64, 8),
        Shape(8192, 64, 1, 2, 256, 32, 2),
        Shape(65536, 8, 1, 2, 32, 64, 8),
    ],
    ids=["kept activations", "matrices", "two chunks"],
)
def test_memory_is_what_the_model_says(shape, tied):
    optimizer = config_of()["optimizer"]
    kept = []

    def begin():
        kept.append(Training(shape, optimizer, tied=tied))
        kept[0].step()
        kept[0].step()

    counted = peak_bytes(begin)
    assert counted == pytest.approx(growth.predicted_bytes(shape, kept[0].num_parameters), rel=0.1)


def test_constants_and_residuals_of_a_machine_that_is_as_the_model_says():
    rows = []
    for flops, parameters in ((1e9, 1_000_000), (4e9, 2_000_000)):
        seconds = {"gradients": flops / 5e10, "update": 40 * parameters / 8e9}
        row = {f"seconds_per_{part}": {"median": value} for part, value in seconds.items()}
        row |= {"seconds_per_step": {"median": 1.25 * sum(seconds.values())}, "peak_memory_bytes": 1}
        rows.append({**vars(TINY), "flops_per_step": flops, "parameters": parameters, **row})
    found = growth.constants(rows)
    assert found == {"flops_per_second": pytest.approx(5e10), "update_bytes_per_second": pytest.approx(8e9)}
    growth.predict(rows, found)
    assert [row["seconds_residual"] for row in rows] == [pytest.approx(0.25)] * 2


def test_a_step_is_one_of_the_default_run():
    config = settings()
    training = Training(TINY, config["optimizer"])
    before = [parameter.detach().clone() for parameter in training.parameters]
    training.step()
    assert torch.are_deterministic_algorithms_enabled() is config["trainer"]["deterministic"]
    assert torch.get_num_threads() == config["trainer"]["num_threads"]
    assert all(not torch.equal(now, then) for now, then in zip(training.parameters, before, strict=True))
    assert all(parameter.grad is None for parameter in training.parameters)
    assert training.optimizer.defaults["fused"] is config["optimizer"]["fused"]
