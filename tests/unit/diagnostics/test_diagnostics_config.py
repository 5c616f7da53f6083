"""``callbacks=diagnostics``: all of them beside the default callbacks, refused where they would be wrong."""

import pytest
from lightning.pytorch import Callback

from running import ROOT, config_of
from tielab.build import build
from tielab.checks import check_config
from tielab.diagnostics.base import Diagnostic
from tielab.errors import RequestError

CONF = ROOT / "conf"
NAMES = {
    "path_gradients", "row_updates", "weight_change", "embedding_geometry", "output_statistics",
    "frequency_loss",
}  # fmt: skip


def composed(*overrides):
    return config_of("callbacks=diagnostics", *overrides)


def test_all_of_them_stand_beside_the_default_callbacks_under_their_names():
    callbacks = composed()["callbacks"]
    assert callbacks.keys() == config_of()["callbacks"].keys() | NAMES
    for name in NAMES:
        built = build(callbacks[name], Callback)
        assert isinstance(built, Diagnostic)
        assert built.name == name


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_can_be_switched_off(name):
    assert NAMES - composed(f"~callbacks.{name}")["callbacks"].keys() == {name}


@pytest.mark.parametrize("trainer", ["fsdp", "fsdp_cpu"])
def test_a_sharded_model_is_refused_in_one_line(trainer):
    with pytest.raises(
        RequestError, match=r"callbacks\.path_gradients reads whole .* trainer\.strategy=fsdp"
    ):
        check_config(composed(f"trainer={trainer}"))
    off = [f"~callbacks.{name}" for name in NAMES]
    check_config(composed(f"trainer={trainer}", *off))


@pytest.mark.parametrize("trainer", ["cpu", "gpu", "ddp", "ddp_cpu"])
def test_whole_models_are_taken(trainer):
    check_config(composed(f"trainer={trainer}"))
