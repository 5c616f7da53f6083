"""A config from a stranger builds our kinds of objects and calls nothing else."""

import lightning.pytorch as L
import pytest
from lightning.pytorch.loggers import Logger

from tielab.build import build
from tielab.errors import RequestError
from tielab.models.minigpt import MiniGPT
from tielab.training.progress import ProgressBar

PROGRESS = "tielab.training.progress.ProgressBar"


def test_builds_what_is_asked_for():
    assert isinstance(build({"_target_": PROGRESS, "bar_seconds": 1.0}, L.Callback), ProgressBar)
    model = build(
        {"_target_": "tielab.models.minigpt.MiniGPT", "vocab_size": 9, "block_size": 4, "embed_dim": 8},
        MiniGPT,
    )
    assert model.token_embed.weight.shape == (9, 8)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"_target_": "os.system", "command": "true"}, "outside the allowed packages"),
        ({"_target_": "tielab.launch.os.system"}, "lives in"),
        ({"_target_": "tielab.code_version.subprocess.run"}, "lives in subprocess"),
        ({"_target_": "builtins.eval"}, "outside the allowed packages"),
        ({"_target_": PROGRESS, "bar_seconds": {"_target_": "os.getcwd"}}, "a _target_ of its own"),
        ({"_target_": PROGRESS, "bar_seconds": [{"_target_": "torch.utils.collect_env.run"}]}, "of its own"),
        ({"_target_": "tielab.models.minigpt.MiniGPT"}, "is not a Callback"),
        ({"_target_": "torch.load"}, "is not a Callback"),
        ({"_target_": "tielab.training.progress.Nothing"}, "cannot be found"),
        ({}, "no _target_"),
    ],
)
def test_refuses_the_rest(node, message):
    with pytest.raises(RequestError, match=message) as error:
        build(node, L.Callback)
    assert "\n" not in str(error.value)


def test_a_logger_factory_is_named_explicitly():
    with pytest.raises(RequestError, match="is not a Logger"):
        build({"_target_": "tielab.tracking.wandb.finish_wandb"}, Logger)
