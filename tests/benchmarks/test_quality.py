"""Both arms of the race to nanoGPT's loss are scored on the same characters by the same rule."""

import json
import sys

import numpy as np
import pytest
import torch

from benchmarks import quality
from running import config_of
from tielab.checks import check_config
from tielab.data.source import split_in_order
from tielab.errors import RequestError
from tielab.models.minigpt import MiniGPT


def trained(wall, loss, own_loss):
    return quality.Trained(wall_seconds=wall, loop_seconds=wall / 2, loss=loss, own_loss=own_loss)


def test_a_quick_run_writes_our_row(corpus, tmp_path):
    path = quality.main(["--text", str(corpus), "--quick", "--out", str(tmp_path)])
    result = json.loads(path.read_text())
    (ours,) = result["rows"]
    text = corpus.read_text()
    assert result["conditions"]["scored_characters"] == len(text) - int(len(text) * 0.9) - 1
    assert ours["arm"] == "tielab"
    assert 0 < ours["loop_seconds"]["median"] < ours["wall_seconds"]["median"]
    # The run itself validates on the first half of what is scored here.
    assert ours["losses"][0] == pytest.approx(ours["own_losses"][0], abs=0.1)
    assert ours["losses"][0] < np.log(64)


def test_what_is_scored_is_what_the_recipe_does_not_train_on():
    text = "".join(chr(97 + n % 26) for n in range(1003))
    parts = dict(split_in_order(text))
    assert quality.held_out(text) == parts["validation"] + parts["test"]
    assert parts["train"] + quality.held_out(text) == text


def test_every_character_but_the_first_is_scored_once_without_context_before_its_window():
    model = MiniGPT(vocab_size=11, block_size=8, embed_dim=16, num_layers=1, num_heads=2, hidden_dim=16)
    ids = np.random.default_rng(0).integers(0, 11, size=24 + 1)
    whole = torch.from_numpy(ids)
    with torch.no_grad():
        windows = [model.token_nats(whole[None, s : s + 8], whole[None, s + 1 : s + 9]) for s in (0, 8, 16)]
    assert quality.score(model.token_nats, ids, context=8, batch_size=2) == pytest.approx(
        float(torch.cat(windows).mean()), rel=1e-6
    )


def test_the_target_is_the_lower_of_nanogpt_s_losses_and_its_rounds_alone_give_ratios():
    ours = [trained(3.0, 1.80, 1.9), trained(6.0, 1.85, 1.9), trained(100.0, 1.95, 1.9)]
    theirs = [trained(10.0, 1.91, 1.88), trained(10.0, 1.90, 1.89)]
    first, second = quality.compare(ours, theirs)
    assert first["target"] == 1.88
    assert (first["reached"], first["seeds"]) == (2, 3)
    assert first["wall_seconds_ratio"] == pytest.approx({"median": 0.45, "low": 0.375, "high": 0.525, "n": 2})
    assert first["loss_worst"] == 1.95
    assert second["own_losses"] == [1.88, 1.89]


def test_a_command_that_fails_is_one_line(tmp_path):
    with pytest.raises(RequestError, match=r"status 3: what went wrong$"):
        quality.timed(
            [sys.executable, "-c", "import sys; print('what went wrong'); sys.exit(3)"], tmp_path, {}
        )


def test_the_recipe_is_the_model_of_nanogpt_s_and_takes_a_file_instead_of_the_web():
    config = config_of("recipe=shakespeare_char", "data=text", "data.paths=[a.txt]")
    check_config(config)
    model, data = config["model"], config["data"]
    assert (model["num_layers"], model["num_heads"], model["embed_dim"], model["hidden_dim"]) == (
        4,
        4,
        128,
        512,
    )
    assert (model["dropout"], data["block_size"], data["split"]) == (0.0, 64, "order")
    web = config_of("recipe=shakespeare_char")
    assert web["data"]["corpus"] == "url"
    same = ("model", "optimizer", "schedule", "budget", "trainer")
    assert {key: web[key] for key in same} == {key: config[key] for key in same}
