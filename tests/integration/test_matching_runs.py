"""Matched arms as a person asks for them: solved, trained, repeated, resumed, and run once."""

import json

import pytest
import yaml

from tielab import bursts, timing
from tielab.folder import read_run_config
from tielab.matching import reference_of
from tielab.record import read_record

ONE_HEAD = ("model.num_heads=1", "~callbacks.best", "budget.tokens=1024")
BOTH = "model.tied=true,false"


def folders_of(tmp_path, kind="sweeps"):
    return sorted((tmp_path / "outputs" / kind).iterdir())


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Seconds per token that no machine has: the adjusted arm takes 4/5 of the other's."""
    quartiles = {"q1": 1.0, "q3": 1.0}
    return {"adjusted": {"median": 0.8, **quartiles}, "reference": {"median": 1.0, **quartiles}}


@pytest.mark.slow
def test_every_axis_in_one_sweep(main, tielab, tiny, tmp_path, measured, monkeypatch, capfd):
    monkeypatch.setattr(timing, "_measure", lambda config, reference: measured)
    command = (
        "-m",
        *tiny,
        *ONE_HEAD,
        BOTH,
        "matching=width,params,flops,time",
        f"data.cache_dir={tmp_path}/c",
    )
    assert main(*command) == 0
    out, _ = capfd.readouterr()
    assert "3 of 8 jobs are runs that another axis of matching asks for as well: each is run once" in out
    (sweep,) = folders_of(tmp_path)
    records = [read_record(sweep / str(job)) for job in range(5)]
    axes = [record.matching and record.matching["axis"] for record in records]
    assert axes == [None, "params", "flops", "time", None]
    assert [record.tied for record in records] == [True, True, True, True, False]
    plain, params, flops, time, untied = records
    for record in (params, flops):
        assert record.config["model"]["embed_dim"] == 33
        assert record.matching["parameters"] == record.parameters["total"]
        assert record.matching["target_parameters"] == untied.parameters["total"]
        ratio = record.flops_per_token["train"] / untied.flops_per_token["train"]
        assert record.matching["flops_ratio"] == ratio
    assert time.parameters == plain.parameters
    assert (plain.tokens_seen, time.tokens_seen) == (1024, 1280)
    assert time.matching["measured"] == measured
    assert (
        "  matching=params: model.embed_dim 32 -> 33, model.hidden_dim 128 -> 132; against the other" in out
    )

    monkeypatch.setattr(timing, "_measure", lambda config, reference: pytest.fail("measured twice"))
    before = {path: path.stat().st_mtime_ns for path in sweep.glob("*/record.json")}
    assert main(*command, "resume=true") == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert folders_of(tmp_path) == [sweep]

    assert main("--config-dir", str(sweep / "1"), "--config-name", "run", "seed=1") == 0
    (run,) = folders_of(tmp_path, "runs")
    repeated = read_record(run)
    assert (repeated.seed, repeated.config["model"]["seed"]) == (1, 1)
    assert repeated.matching == params.matching
    capfd.readouterr()
    for override in ("model.embed_dim=40", "width=d64", "tying=untied", "matching=width", "budget=smoke"):
        assert main("--config-dir", str(sweep / "1"), "--config-name", "run", override) == 2
        assert "repeat its request with matching=params instead of its run.yaml" in capfd.readouterr().err
    done = tielab("rerun", sweep / "1", "hydra.run.dir=again")
    assert done.returncode == 0, done.stderr


def test_a_plain_run_is_repeated_along_another_axis(main, tiny, tmp_path):
    assert main(*tiny, *ONE_HEAD, "model.tied=false") == 0
    (run,) = folders_of(tmp_path, "runs")
    overrides = ("model.tied=true", "matching=params", "hydra.run.dir=outputs/runs/x")
    assert main("--config-dir", str(run), "--config-name", "run", *overrides) == 0
    found = read_record(tmp_path / "outputs" / "runs" / "x")
    assert (found.config["model"]["embed_dim"], found.matching["axis"]) == (33, "params")


def test_a_match_that_cannot_be_trained_is_refused_as_a_whole(main, tiny, tmp_path, capfd):
    wrong = {
        "trainer=fsdp_cpu trainer.devices=2 trainer.tensor_parallel_size=2 model.hidden_dim=96":
            "model.hidden_dim=99 cannot be split",
        "model.num_heads=16": "more than 5% off; use fewer model.num_heads or matching.by=depth",
        "matching.by=depth": "more than 5% off; use matching.by=width",
        "matching=parms": "matching=parms is not an option; did you mean params?",
        "matching.axis=parms": "matching.axis: Invalid value 'parms', expected one of",
        "+matching.requested.a=1": "written by the tool",
    }  # fmt: skip
    for overrides, message in wrong.items():
        command = ("-m", *tiny, *ONE_HEAD, BOTH, "matching=params", *overrides.split())
        assert main(*command) == 2
        assert message in capfd.readouterr().err
        assert not list(tmp_path.glob("outputs/*/*"))


def test_bursts_train_both_arms_in_turn(main, tiny, tmp_path, monkeypatch):
    assert main(*tiny, *ONE_HEAD) == 0
    (run,) = folders_of(tmp_path, "runs")
    config = read_run_config(run)
    order = []
    burst = bursts.burst
    monkeypatch.setattr(bursts, "SECONDS_PER_BURST", 0.0)
    monkeypatch.setattr(bursts, "burst", lambda fit, steps: order.append(fit.model.tied) or burst(fit, steps))
    found = bursts.measure(config, reference_of(config["model"]), tmp_path)
    assert order[4:] == [True, False, False, True, True, False, False, True, True, False]
    for arm in ("adjusted", "reference"):
        assert 0 < found[arm]["q1"] <= found[arm]["median"] <= found[arm]["q3"]
    assert (found["num_repeats"], found["steps_per_repeat"]) == (5, 6)


@pytest.mark.slow
def test_the_measurement_runs_in_a_process_of_its_own(train, tiny, tmp_path):
    cache = tmp_path / "cache"
    done = train(*tiny, *ONE_HEAD, "matching=time", "budget.tokens=51200", f"data.cache_dir={cache}")
    assert done.returncode == 0, done.stderr
    (path,) = (cache / "timings").glob("*.json")
    found = json.loads(path.read_text())["measured"]
    assert len(found["load_average"]) == 2
    (run,) = folders_of(tmp_path, "runs")
    record = read_record(run)
    expected = round(400 * found["reference"]["median"] / found["adjusted"]["median"]) * 128
    assert record.tokens_seen == expected
    assert record.matching is None or record.matching["measured"] == found


EXPERIMENT = """\
# @package _global_
defaults:
  - override /budget: short

hydra:
  mode: MULTIRUN
  sweeper:
    params:
      model.tied: true,false
      seed: 0,1,2
      matching: width,params
"""


def test_an_experiment_sweeps_by_itself_and_can_be_made_smaller(main, tielab, tiny, tmp_path, capfd):
    (tmp_path / "mine" / "experiments").mkdir(parents=True)
    (tmp_path / "mine" / "experiments" / "both.yaml").write_text(EXPERIMENT)
    small = [option for option in tiny if not option.startswith("budget.")]
    command = ("--config-dir", str(tmp_path / "mine"), "experiments=both", *small, "model.num_heads=1",
               "budget=smoke", "seed=0", "data.batch_size=256", "data.stride=4",
               "~callbacks.best")  # fmt: skip
    assert main(*command) == 0
    (sweep,) = folders_of(tmp_path)
    configs = [read_run_config(sweep / str(job)) for job in range(3)]
    assert sorted(path.name for path in sweep.iterdir() if path.is_dir()) == ["0", "1", "2"]
    assert [(c["model"]["tied"], c["model"]["embed_dim"], c["seed"]) for c in configs] == [
        (True, 32, 0), (True, 33, 0), (False, 32, 0),
    ]  # fmt: skip
    assert {config["budget"]["tokens"] for config in configs} == {65536}
    (line, *_) = (sweep / "sweep.jsonl").read_text().splitlines()
    request = json.loads(line)["request"]
    assert "experiments=both" in request
    assert not [part for part in request if part.startswith("hydra")]
    capfd.readouterr()
    assert main(*command, "resume=true") == 0
    assert "resuming" in capfd.readouterr().out
    assert folders_of(tmp_path) == [sweep]
    assert tielab("resume", sweep).returncode == 0


def test_what_was_solved_is_written_down_where_the_run_is_repeated_from(main, tiny, tmp_path):
    assert main(*tiny, *ONE_HEAD, "matching=params") == 0
    (run,) = folders_of(tmp_path, "runs")
    written = yaml.safe_load((run / "run.yaml").read_text())
    assert written["model"]["embed_dim"] == 33
    assert written["matching"]["requested"] == {"model.embed_dim": 32, "model.hidden_dim": 128}
