"""Every tying scheme is one option that composes, trains and is sampled; what excludes it is refused."""

import pytest
import torch

from running import ROOT, config_of
from tielab.checks import check_config
from tielab.config import SCHEME_DEFAULTS, SCHEME_KEYS, known_keys, lookup
from tielab.errors import RequestError
from tielab.folder import reserve
from tielab.record import write_record
from tielab.run import execute, first_record
from tielab.sample import continue_text, load_run

CONF = ROOT / "conf"
OPTIONS = sorted(path.stem for path in (CONF / "tying").glob("*.yaml"))


def composed(*overrides):
    config = config_of(*overrides)
    check_config(config)
    return config


def test_the_defaults_are_those_of_a_plainly_tied_model():
    assert set(SCHEME_KEYS) == {"model.tied", *SCHEME_DEFAULTS}
    assert set(SCHEME_KEYS) <= set(known_keys())
    for overrides in ((), ("tying=tied",), ("tying=untied",)):
        config = composed(*overrides)
        assert {key: lookup(config, key) for key in SCHEME_DEFAULTS} == SCHEME_DEFAULTS


def test_every_option_is_another_scheme():
    configs = [composed(f"tying={option}") for option in OPTIONS]
    schemes = {tuple(lookup(config, key) for key in SCHEME_KEYS) for config in configs}
    assert len(schemes) == len(OPTIONS)


def test_the_input_scale_of_tied_scaled_is_the_root_of_the_width():
    for width, scale in (("d64", 8.0), ("d256", 16.0)):
        assert composed("tying=tied_scaled", f"width={width}")["model"]["embed_scale"] == scale


def trained(config, folder):
    """The record of a run, made by the fork server."""
    reserve(config, folder)
    write_record(folder, first_record(config))
    record = execute(config, folder)
    assert record.finished, record.error
    return record


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_trains_and_is_sampled(option, tiny, tmp_path):
    config, folder = composed(*tiny, "budget.tokens=256", f"tying={option}"), tmp_path / "run"
    record = trained(config, folder)
    assert record.num_steps == 2
    assert record.tie_observed is config["model"]["tied"]
    assert abs(record.initial_loss - 4.16) < 0.5  # ln 64
    for checkpoint in ("best", "last"):
        model, tokenizer = load_run(folder, checkpoint)
        assert continue_text(model, tokenizer, "ab", 3, seed=0, greedy=True)
    assert record.parameters["total"] == sum(parameter.numel() for parameter in model.parameters())


@pytest.fixture(scope="module")
def split_run(tiny, tmp_path_factory):
    """A run of 8 steps that was split after the fourth: its config, folder and record."""
    config = composed(*tiny, "budget.tokens=1024", "tying=untie_late", "model.untie_at=0.5")
    config["callbacks"]["often"] = {
        "_target_": "lightning.pytorch.callbacks.ModelCheckpoint", "filename": "step{step}",
        "save_on_train_epoch_end": False, "enable_version_counter": False, "every_n_train_steps": 2,
        "save_top_k": -1, "auto_insert_metric_name": False,
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("split") / "run"
    return config, folder, trained(config, folder)


@pytest.mark.parametrize(("step", "is_split"), [(2, False), (4, False), (6, True), (8, True)])
def test_a_run_that_splits_is_sampled_from_before_and_after_it(step, is_split, split_run, tmp_path):
    path = split_run[1] / "checkpoints" / f"step{step}.ckpt"
    contents = torch.load(path, weights_only=True)
    saved = contents["state_dict"]
    assert ("model.lm_head.weight" in saved) is is_split
    model, _ = load_run(split_run[1], path)
    found = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    assert found.keys() == saved.keys()
    assert all(torch.equal(tensor, found[name]) for name, tensor in saved.items())
    if is_split:
        saved["model.lm_head.weight"] = torch.zeros(3, 32)
        torch.save(contents, tmp_path / "wrong.ckpt")
        with pytest.raises(RequestError, match=r"model\.lm_head\.weight is a tensor \(3, 32\), expected"):
            load_run(split_run[1], tmp_path / "wrong.ckpt")


@pytest.mark.parametrize("step", [2, 4, 6])
def test_a_run_that_splits_goes_on_from_before_and_after_it(step, split_run, tmp_path):
    config, folder, whole = split_run
    start = folder / "checkpoints" / f"step{step}.ckpt"
    record = trained({**config, "resume_from": str(start)}, tmp_path / "run")
    assert record.resumed_at_step == step
    assert record.tie_observed is True
    assert record.parameters == whole.parameters
    assert record.validation == whole.validation
    assert record.weights_hash == whole.weights_hash


WRONG = [
    ("model.head_init_std=0.1", "model.head_init_std=0.1 belongs to a head with a matrix of its own, found"),
    ("optimizer.head_learning_rate_scale=2", "head_learning_rate_scale=2.0 belongs to a head with a matrix"),
    ("tying=untie_late model.head_init_std=0.1", "model.head_init_std=0.1 belongs to a head with a matrix"),
    ("model.embed_frozen=true", "model.embed_frozen=true would freeze the head too, found model.tied=true"),
    ("tying=untied model.head_map=linear", "model.head_map=linear belongs to a shared matrix, found"),
    (
        "model.untie_at=1 optimizer.head_learning_rate_scale=3",
        "optimizer.head_learning_rate_scale=3.0 belongs to",
    ),
    ("tying=untied model.untie_at=0.5", "model.untie_at=0.5 belongs to a shared matrix, found model.tied=f"),
    ("model.head_map_rank=4", "model.head_map_rank=4 needs model.head_map=linear, found none"),
    ("tying=rotated model.head_map_rank=4", "model.head_map_rank=4 needs model.head_map=linear, found rot"),
    ("tying=permuted model.head_map_penalty=1", "model.head_map_penalty=1.0 needs model.head_map=linear"),
    ("tying=tied_low_rank model.head_map_rank=0", "model.head_map_rank=0 is out of range: it must be at"),
    ("tying=tied_low_rank model.head_map_rank=128", "must be at least 1 and less than model.embed_dim=128"),
    ("tying=tied_linear model.head_map_penalty=-1", "model.head_map_penalty=-1.0 is out of range"),
    ("tying=factorised model.embed_rank=0", "model.embed_rank=0 is out of range: it must be at least 1"),
    ("tying=factorised model.embed_rank=128", "must be at least 1 and less than model.embed_dim=128"),
    ("tying=factorised model.head_map=rotation", "model.embed_rank=16 does not go with model.head_map=rot"),
    ("tying=untie_late model.head_map=linear", "model.untie_at=0.667 does not go with model.head_map=linear"),
    ("tying=untie_late model.embed_rank=4", "model.untie_at=0.667 does not go with model.embed_rank=4"),
    ("model.untie_at=1.5", "model.untie_at=1.5 is out of range: it must lie in [0, 1]"),
    ("model.untie_at=-0.1", "model.untie_at=-0.1 is out of range: it must lie in [0, 1]"),
    ("model.untie_at=nan", "model.untie_at=nan is out of range"),
    (
        "tying=untied model.head_init_std=-1",
        "model.head_init_std=-1.0 is out of range: it must be at least 0",
    ),
    ("model.embed_init_std=0", "model.embed_init_std=0.0 is out of range: it must be greater than 0"),
    ("model.embed_gradient_scale=-1", "model.embed_gradient_scale=-1.0 is out of range"),
    ("tying=frozen model.embed_gradient_scale=2", "embed_gradient_scale=2.0 would have no effect with"),
    (
        "tying=frozen optimizer.embedding_learning_rate_scale=2",
        "embedding_learning_rate_scale=2.0 would have no effect with model.embed_frozen=true",
    ),
    ("tying=frozen model.embed_rank=4", "model.embed_rank=4 has a second factor that is trained"),
    ("optimizer.embedding_learning_rate_scale=0", "embedding_learning_rate_scale=0.0 is out of range"),
    ("tying=untied optimizer.head_learning_rate_scale=0", "head_learning_rate_scale=0.0 is out of range"),
    (
        "tying=untie_late trainer=ddp_cpu trainer.devices=2",
        "model.untie_at=0.667 gives the model a parameter",
    ),
    ("tying=untie_late trainer=fsdp_cpu", "model.untie_at=0.667 gives the model a parameter"),
    ("tying=rotated trainer=fsdp_cpu", "model.head_map=rotation does not go with trainer.strategy=fsdp"),
    ("tying=frozen trainer=fsdp_cpu", "model.embed_frozen=true does not go with trainer.strategy=fsdp"),
]


@pytest.mark.parametrize(("overrides", "message"), WRONG, ids=[o for o, _ in WRONG])
def test_what_does_not_go_together_is_refused_in_one_line(overrides, message):
    with pytest.raises(RequestError) as error:
        composed(*overrides.split())
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "overrides",
    [
        "tying=untied_separate trainer=fsdp_cpu",
        "tying=tied_scaled trainer=fsdp_cpu",
        "tying=untied model.head_init_std=0",
        "tying=untie_late optimizer.head_learning_rate_scale=0.5",
        "model.untie_at=0",
        "model.untie_at=1",
        "tying=permuted trainer=ddp_cpu trainer.devices=2",
        "tying=tied_low_rank model.head_map_rank=1",
        "model.embed_gradient_scale=0",
        "tying=factorised_untied model.head_init_std=0.1 model.embed_init_std=0.3",
    ],
)
def test_what_goes_together_is_not_refused(overrides):
    composed(*overrides.split())
