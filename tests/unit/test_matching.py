"""The size that is solved is the nearest there is, it counts what is built, and nothing else changes."""

import json
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from running import config_of
from tielab import matching, timing
from tielab.checks import _check_matching, check_config
from tielab.config import SCHEME_DEFAULTS, config_hash
from tielab.errors import RequestError
from tielab.matching import check_still_matched, describe, matched, matching_record, reference_of, solve_sizes
from tielab.models.accounting import flops_per_token, parameter_ledger
from tielab.models.minigpt import MiniGPT
from tielab.request import without_repeats
from tielab.sizes import count_parameters, train_flops_per_token


def asked(*overrides):
    return config_of("model=nano", "model.num_heads=1", "vocab=bpe512", *overrides)


def built(model, vocab_size):
    with torch.device("meta"):
        return MiniGPT(**{k: v for k, v in model.items() if k != "_target_"} | {"vocab_size": vocab_size})


shapes = st.fixed_dictionaries(
    {
        "embed_dim": st.integers(1, 12).map(lambda k: 4 * k),
        "num_heads": st.sampled_from([1, 2, 4]),
        "hidden_dim": st.integers(1, 100),
        "num_layers": st.integers(1, 4),
        "block_size": st.integers(1, 40),
        "tied": st.booleans(),
        "output_bias": st.booleans(),
    }
)


@st.composite
def schemes(draw):
    """The model keys of a tying scheme that decide what is counted, as ``check_scheme`` lets them meet."""
    shape = draw(shapes)
    ranks = st.integers(1, shape["embed_dim"] - 1)
    qualified = [{}, {"embed_rank": draw(ranks)}]
    if shape["tied"]:
        maps = ("permutation", "rotation", "linear")
        qualified += [{"head_map": kind} for kind in maps]
        qualified += [{"head_map": "linear", "head_map_rank": draw(ranks)}]
        qualified += [{"untie_at": share} for share in (0.0, 0.5, 1.0)]
    return {**shape, **draw(st.sampled_from(qualified))}


@given(model=schemes(), vocab_size=st.integers(2, 500))
@settings(max_examples=100, deadline=None)
def test_what_is_counted_without_building_is_what_is_built(model, vocab_size):
    network = built(model, vocab_size)
    assert count_parameters(model, vocab_size) == parameter_ledger(network)["total"]
    assert train_flops_per_token(model, vocab_size) == flops_per_token(network)["train"]


def test_the_operations_of_maps_that_have_no_parameters_count():
    shape = asked("data.block_size=128", "width=d64")["model"]
    flops = {
        name: train_flops_per_token({**shape, **scheme}, 512)
        for name, scheme in {
            "plain": {}, "rotation": {"head_map": "rotation"}, "factorised": {"embed_rank": 16},
        }.items()
    }  # fmt: skip
    assert flops["rotation"] == flops["plain"] + 6 * 64 * 64
    assert flops["factorised"] == flops["plain"] - 6 * 512 * (64 - 16) + 2 * 6 * 16 * 64


@given(model=shapes, vocab_size=st.integers(2, 500), target=st.integers(1, 200_000))
@settings(max_examples=50, deadline=None)
def test_the_solved_size_is_the_nearest(model, vocab_size, target):
    def count(k):
        return count_parameters({**model, "num_layers": k}, vocab_size)

    found = solve_sizes(model, vocab_size, target, lambda k: {"num_layers": k})
    nearest = min(abs(count(k) - target) for k in range(1, 3 + target // (count(2) - count(1))))
    assert min(abs(number - target) for _, number in found) == nearest
    for size, number in found:
        assert number == count(size["num_layers"])


def test_a_tied_model_is_widened_to_the_parameters_of_the_untied_one():
    config = asked("matching=params")
    result = matched(config)
    untied = built({**config["model"], "tied": False}, 512)
    found = parameter_ledger(built(result["model"], 512))["total"]
    for other in (result["model"]["embed_dim"] - 1, result["model"]["embed_dim"] + 1):
        neighbour = {**result["model"], "embed_dim": other, "hidden_dim": 4 * other}
        target = parameter_ledger(untied)["total"]
        assert abs(found - target) < abs(parameter_ledger(built(neighbour, 512))["total"] - target)
    assert result["model"]["hidden_dim"] == 4 * result["model"]["embed_dim"]
    record = matching_record(result)
    assert record["parameters"] == found
    assert record["target_parameters"] == parameter_ledger(untied)["total"]
    assert record["parameter_mismatch"] == found / record["target_parameters"] - 1
    assert record["requested"] == {"model.embed_dim": 32, "model.hidden_dim": 128}
    assert record["solved"] == {
        "model.embed_dim": result["model"]["embed_dim"],
        "model.hidden_dim": result["model"]["hidden_dim"],
    }
    flops = [flops_per_token(network)["train"] for network in (built(result["model"], 512), untied)]
    assert record["flops_ratio"] == flops[0] / flops[1]
    assert "model.embed_dim 32 -> " in describe(result)
    assert config == asked("matching=params")  # what was asked for is left as it is


def test_nothing_but_what_is_solved_changes():
    config = asked("matching=params")
    result = matched(config)
    for key in ("embed_dim", "hidden_dim"):
        result["model"][key] = config["model"][key]
    result["matching"] |= {"requested": None, "solution": None}
    assert result == config


def test_an_input_scale_that_is_the_root_of_the_width_follows_the_solved_one():
    config = asked("matching=params", "tying=tied_scaled")
    result = matched(config)
    assert result["model"]["embed_dim"] > 32
    assert result["model"]["embed_scale"] == result["model"]["embed_dim"] ** 0.5
    assert matching_record(result)["requested"]["model.embed_scale"] == 32**0.5
    assert "model.embed_scale 5.65" in describe(result)
    check_config(result)
    other = matched(asked("matching=params", "model.embed_scale=50"))
    assert other["model"]["embed_scale"] == 50
    assert "model.embed_scale" not in matching_record(other)["requested"]
    deep = matched(asked("matching=params", "matching.by=depth", "vocab=bpe2048", "tying=tied_scaled"))
    assert "model.embed_scale" not in matching_record(deep)["requested"]


def test_initial_scales_that_the_solving_sets_apart_are_told():
    wide = ("matching=params", "width=d128", "vocab=bpe2048")
    result = matched(asked(*wide))
    record = matching_record(result)
    assert record["init_std"] == built(result["model"], 512).init_std < 0.02
    assert record["target_init_std"] == 0.02
    assert describe(result).endswith(
        f"init_std {record['init_std']:.4g} for 0.02 (model.init_std=0.02 keeps it)"
    )
    for same in (matched(asked(*wide, "model.init_std=0.02")), matched(asked("matching=params"))):
        record = matching_record(same)
        assert record["init_std"] == record["target_init_std"] == 0.02
        assert "init_std" not in describe(same)
    old = json.loads(json.dumps(result))
    del old["matching"]["solution"]["init_std"], old["matching"]["solution"]["target_init_std"]
    check_config(old)
    assert "init_std" not in describe(old)


def test_the_reference_has_every_default_of_a_scheme():
    model = asked("tying=tied_low_rank")["model"]
    reference = reference_of(model)
    for key, default in SCHEME_DEFAULTS.items():
        section, _, name = key.partition(".")
        assert section != "model" or reference[name] == default


@pytest.mark.parametrize("tied", ["true", "false"])
def test_a_time_that_diagnostics_would_add_to_is_not_matched(tied):
    config = asked("matching=time", "callbacks=diagnostics", f"model.tied={tied}")
    with pytest.raises(RequestError, match=r"matching=time .* callbacks\.path_gradients"):
        check_config(config)
    check_config(asked("matching=params", "callbacks=diagnostics", f"model.tied={tied}"))
    check_config(asked("matching=time", f"model.tied={tied}"))


@pytest.mark.parametrize("axis", ["width", "params", "flops", "time"])
def test_the_other_arm_stays_and_its_identity_too(axis):
    config = asked("model.tied=false", f"matching={axis}")
    assert matched(config) is config
    assert matching_record(config) is None
    assert describe(config) == ""
    assert config_hash(config) == config_hash(asked("model.tied=false"))


def test_heads_and_a_broken_proportion_decide_which_widths_there_are():
    wide = ("matching=params", "model.embed_dim=192", "vocab=bpe4096", "model.num_heads=4")
    result = matched(asked(*wide, "model.hidden_dim=576"))["model"]
    assert result["embed_dim"] % 4 == 0
    assert result["hidden_dim"] == 3 * result["embed_dim"]
    odd = matched(asked(*wide, "model.hidden_dim=208"))["model"]
    assert odd["embed_dim"] % 12 == 0  # 192:208 is 12:13
    assert odd["hidden_dim"] * 12 == odd["embed_dim"] * 13


def test_the_untied_arm_is_narrowed_if_it_is_the_adjusted_one():
    config = asked("model.tied=false", "matching=params", "matching.adjusted=untied")
    result = matched(config)
    assert result["model"]["embed_dim"] < 32
    assert count_parameters({**config["model"], "tied": True}, 512) == pytest.approx(
        matching_record(result)["parameters"], rel=0.05
    )
    tied = asked("matching=params", "matching.adjusted=untied")
    assert matched(tied) is tied


def test_by_depth_the_number_of_blocks_is_solved():
    config = asked("matching=params", "matching.by=depth", "vocab=bpe2048")
    result = matched(config)
    assert matching_record(result)["requested"] == {"model.num_layers": 2}
    assert result["model"]["num_layers"] == 7  # 2,048 x 32 parameters, 12,704 a block: 5.2 of them
    assert result["model"]["embed_dim"] == 32


def test_a_match_that_is_none_is_refused_with_the_nearest_sizes():
    with pytest.raises(RequestError) as error:
        matched(asked("matching=params", "matching.by=depth"))
    assert "model.tied=true, the nearest are num_layers=3 (" in str(error.value)
    assert "num_layers=4 (" in str(error.value)
    assert "use matching.by=width" in str(error.value)
    with pytest.raises(RequestError, match=r"embed_dim=32 \(.*embed_dim=48 \(.*fewer model.num_heads"):
        matched(asked("matching=params", "model.num_heads=16"))


def test_a_qualified_scheme_meets_the_plain_arm():
    config = asked("matching=params", "model.embed_scale=5")
    scaled = {**config["model"], "head_map": "linear", "head_map_rank": None, "embed_rank": None}
    reference = reference_of(scaled)
    assert (reference["tied"], reference["head_map"], reference["embed_scale"]) == (False, "none", 1.0)
    target = count_parameters(reference_of(config["model"]), 512)
    result = matched({**config, "model": scaled})
    assert matching_record(result)["target_parameters"] == target
    assert result["model"]["embed_dim"] < matched(config)["model"]["embed_dim"]  # the map has D x D itself
    factorised = matched({**config, "model": {**scaled, "head_map": "none", "embed_rank": 8}})
    assert matching_record(factorised)["parameters"] == pytest.approx(target, rel=0.05)


def test_equal_flops_are_equal_to_half_a_step():
    config = asked("matching=flops")
    result = matched(config)
    sizes = matched(asked("matching=params"))["model"]
    assert {key: result["model"][key] for key in ("embed_dim", "hidden_dim")} == {
        key: sizes[key] for key in ("embed_dim", "hidden_dim")
    }
    ours = flops_per_token(built(result["model"], 512))["train"]
    theirs = flops_per_token(built({**config["model"], "tied": False}, 512))["train"]
    per_step = 4 * 128
    assert result["budget"]["tokens"] % per_step == 0
    asked_steps = -(-400_000 // per_step)
    assert abs(result["budget"]["tokens"] * ours - asked_steps * per_step * theirs) <= per_step * ours / 2
    record = matching_record(result)
    assert (record["tokens"], record["target_tokens"]) == (result["budget"]["tokens"], asked_steps * per_step)
    assert record["requested"]["budget.tokens"] == 400_000
    assert record["train_flops"] == record["tokens"] * ours


def test_a_budget_in_bytes_becomes_one_in_tokens(monkeypatch):
    split = SimpleNamespace(num_tokens=100, num_bytes=250)
    monkeypatch.setattr(matching, "_prepared", lambda config: SimpleNamespace(train=split))
    config = asked("matching=flops")
    config["budget"] |= {"tokens": None, "bytes": 1_000_001}
    result = matched(config)
    record = matching_record(result)
    assert matching.planned_tokens(config) == 400_001
    assert record["target_tokens"] == 782 * 512
    assert (result["budget"]["bytes"], record["requested"]["budget.bytes"]) == (None, 1_000_001)


def test_the_vocabulary_of_the_prepared_text_counts_where_the_config_names_none(monkeypatch):
    tokenizer = SimpleNamespace(vocab_size=700)
    monkeypatch.setattr(matching, "_prepared", lambda config: SimpleNamespace(tokenizer=tokenizer))
    config = asked("matching=params", "vocab=char")
    assert config["model"]["vocab_size"] is None
    assert matching_record(matched(config))["target_parameters"] == count_parameters(
        {**config["model"], "tied": False}, 700
    )


QUARTILES = {"q1": 1.0, "q3": 1.0}
MEASURED = {"adjusted": {"median": 0.8, **QUARTILES}, "reference": {"median": 1.0, **QUARTILES}}


def test_equal_seconds_scale_the_budget_at_the_sizes_asked_for(monkeypatch):
    monkeypatch.setattr(timing, "seconds_per_token", lambda config, reference: MEASURED)
    config = asked("matching=time", "budget.tokens=51200")
    result = matched(config)
    assert result["model"] == config["model"]
    assert result["budget"]["tokens"] == 64000
    record = matching_record(result)
    assert (record["by"], record["measured"]) == (None, MEASURED)
    assert record["solved"] == {"budget.tokens": 64000}


def test_a_timing_is_measured_once_for_all_seeds(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(timing, "_measure", lambda config, reference: calls.append(config) or MEASURED)

    def ask(*overrides):
        config = asked("matching=time", f"data.cache_dir={tmp_path}", *overrides)
        return timing.seconds_per_token(config, reference_of(config["model"]))

    assert ask() == ask("seed=3") == ask("optimizer.learning_rate=0.1", "budget.tokens=1000") == MEASURED
    assert len(calls) == 1
    for other in ("trainer.num_threads=7", "data.batch_size=2", "width=d64", "vocab=bpe1024"):
        ask(other)
    assert len(calls) == 5
    monkeypatch.setattr(timing, "code_hash", lambda: "of other code")
    ask()
    assert len(calls) == 6
    for path in (tmp_path / "timings").glob("*.json"):
        path.write_text(json.dumps({"measured": {}}))
    ask()
    assert len(calls) == 7
    with pytest.raises(RequestError, match="matching=time measures one process, 2 were asked for"):
        ask("trainer=ddp_cpu", "trainer.devices=2")


def test_a_repetition_keeps_its_size_and_nothing_it_depends_on_may_change():
    original = matched(asked("matching=params"))
    repeated = json.loads(json.dumps(original))
    for node in (repeated, repeated["model"], repeated["data"]):
        node["seed"] = 1
    repeated["optimizer"]["learning_rate"] = 0.1
    check_still_matched(repeated, original)
    check_config(repeated)
    assert matched(repeated) is repeated
    for section, key, value in (
        ("model", "tied", False),
        ("model", "embed_dim", 64),
        ("data", "block_size", 64),
        ("budget", "tokens", 5),
        ("matching", "axis", "flops"),
        ("matching", "requested", None),
    ):
        changed = json.loads(json.dumps(original))
        changed[section][key] = value
        with pytest.raises(RequestError, match=rf"{section}.{key} was .* repeat its request with matching=p"):
            check_still_matched(changed, original)
    with pytest.raises(RequestError, match=r"matching\.requested is written by the tool"):
        check_still_matched(original, None)
    check_still_matched(asked("matching=params"), asked())


def test_a_solution_that_is_not_what_the_config_has_is_refused():
    check_config(matched(asked("matching=params")))
    for change in (
        {"solution": None},
        {"requested": {"model.embed_dim": 32}},
        {"solution": {"solved": {"model.embed_dim": 32, "model.hidden_dim": 128}}},
        {"solution": "x"},
    ):
        config = matched(asked("matching=params"))
        config["matching"] |= change
        with pytest.raises(RequestError, match="written by the tool"):
            check_config(config)


def test_a_run_that_is_untied_on_the_way_has_no_one_size():
    config = asked("matching=params")
    config["model"]["untie_at"] = 0.5
    with pytest.raises(RequestError, match=r"matching=params does not go with model\.untie_at=0\.5"):
        _check_matching(config)


def test_jobs_that_differ_in_the_axis_alone_are_run_once(capsys):
    def jobs(*configs):
        return [([str(number)], config) for number, config in enumerate(configs)]

    axes = [asked("model.tied=false", f"matching={axis}") for axis in ("width", "params", "flops")]
    assert without_repeats(jobs(*axes, asked("model.tied=false", "seed=1"))) == [
        (["0"], axes[0]), (["3"], asked("model.tied=false", "seed=1")),
    ]  # fmt: skip
    assert "2 of 4 jobs are runs that another axis of matching asks for as well" in capsys.readouterr().out

    solved = matched(asked("matching=params"))
    as_such = asked(*(f"{key}={value}" for key, value in matching_record(solved)["solved"].items()))
    assert config_hash(solved) == config_hash(as_such)  # but they belong to two settings
    twice = jobs(solved, as_such, asked(), asked())
    assert without_repeats(twice) == twice
    assert capsys.readouterr().out == ""
