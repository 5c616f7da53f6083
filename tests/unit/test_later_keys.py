"""A key that came later changes nothing where it is not used: no hash, no run.yaml, no checkpoint."""

import copy

import pytest
import yaml

from running import TINY, config_of
from tielab.config import LATER_DEFAULTS, computed, config_hash, with_later_keys
from tielab.errors import RequestError
from tielab.folder import read_run_config, run_yaml
from tielab.matching import with_values
from tielab.report.settings import setting_of
from tielab.training.task import check_identity
from tielab.trust import read_run_yaml


@pytest.fixture(scope="module")
def config():
    return config_of(*TINY, "data.paths=[some.txt]")


@pytest.fixture(scope="module")
def older(config):
    """The same as a run had it before these keys."""
    left = copy.deepcopy(config)
    del left["model"]["activation"], left["init_from"], left["init_tie_from"], left["jobs_per_gpu"]
    return left


def test_the_defaults_are_those_of_conf(config):
    assert {"model.activation", "init_from", "init_tie_from"} <= LATER_DEFAULTS.keys()
    assert with_values(config, LATER_DEFAULTS) == config


def test_a_hash_is_that_of_before_and_tells_a_used_key(config, older):
    assert config_hash(config) == config_hash(older)
    assert not LATER_DEFAULTS.keys() & computed(config).keys()
    for key, value in (("model.activation", "gelu_tanh"), ("init_from", "x"), ("init_tie_from", "head")):
        assert config_hash(with_values(config, {key: value})) != config_hash(config)


def test_an_older_run_yaml_is_read_with_every_key(config, older, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(run_yaml(older))
    assert read_run_yaml(path) == read_run_config(tmp_path) == {**config, "resume": False}
    assert with_later_keys(copy.deepcopy(older)) == config
    path.write_text(yaml.safe_dump({"defaults": [], "seed": 0}))
    with pytest.raises(RequestError, match="is not the config of a run"):
        read_run_config(tmp_path)


def test_an_older_record_has_the_same_setting(config, older, make_record_of):
    assert setting_of(make_record_of(config)) == setting_of(make_record_of(older))
    used = with_values(config, {"model.activation": "gelu_tanh"})
    assert setting_of(make_record_of(used)) != setting_of(make_record_of(config))


@pytest.fixture
def make_record_of():
    from tielab.record import Record

    return lambda config: Record("run", "finished", config, config_hash(config), tied=True, seed=0)


def test_a_checkpoint_tells_a_used_key_either_way():
    plain, used = {"model.tied": True}, {"model.tied": True, "model.activation": "gelu_tanh"}
    check_identity(plain, {**plain, "model.activation": "gelu"})
    with pytest.raises(RequestError, match=r"model\.activation=gelu, this run asks for .*=gelu_tanh"):
        check_identity(plain, used)
    with pytest.raises(RequestError, match=r"model\.activation=gelu_tanh, this run asks for .*=gelu;"):
        check_identity(used, plain)
