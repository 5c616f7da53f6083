"""A run repeats from its folder, bit for bit, and a checkpoint goes only where it belongs."""

import json
import shutil
import subprocess
import sys

import pytest
import yaml

from running import ROOT
from tielab.record import read_record


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory, tiny, cache_dir):
    """A finished tied run with dropout."""
    cwd = tmp_path_factory.mktemp("run")
    command = [sys.executable, str(ROOT / "train.py"), *tiny, "model.dropout=0.1"]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    (folder,) = (cwd / "outputs" / "runs").iterdir()
    return folder


def only_run(tmp_path):
    (folder,) = (tmp_path / "outputs" / "runs").iterdir()
    return read_record(folder)


def test_rerun_reproduces_bit_for_bit(run_folder, tielab, tmp_path):
    done = tielab("rerun", run_folder)
    assert done.returncode == 0, done.stderr
    original, repeated = read_record(run_folder), only_run(tmp_path)
    assert repeated.weights_hash == original.weights_hash
    assert repeated.validation == original.validation
    assert repeated.rerun_of == original.run_id
    assert repeated.run_id != original.run_id
    assert f"reproduced bit for bit: weights {original.weights_hash}" in done.stdout


def test_what_differs_is_alone_on_standard_output_as_json(run_folder, tielab, tmp_path):
    done = tielab("rerun", run_folder, "seed=1", "--json")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    original, repeated = read_record(run_folder), only_run(tmp_path)
    assert (content["original"], content["repeated"]) == (original.run_id, repeated.run_id)
    assert (content["reproduced"], content["unexplained"]) == (False, False)
    changed = f"weights_hash: {original.weights_hash} -> {repeated.weights_hash}"
    assert content["differing_results"][0] == changed
    assert "run: " in done.stderr


def test_rerun_with_another_value_names_what_differs(run_folder, tielab, tmp_path):
    done = tielab("rerun", run_folder, "seed=1")
    assert done.returncode == 0, done.stderr
    assert "the results differ:" in done.stdout
    assert "config_hash:" in done.stdout
    assert "body_hash:" in done.stdout
    original, repeated = read_record(run_folder), only_run(tmp_path)
    assert repeated.seed == repeated.config["model"]["seed"] == repeated.config["data"]["seed"] == 1
    assert repeated.body_hash != original.body_hash
    assert repeated.batch_hash != original.batch_hash


def test_a_sweep_from_a_run_moves_what_follows_a_key(run_folder, train, tmp_path):
    where = ("--config-dir", run_folder, "--config-name", "run")
    done = train("-m", *where, "seed=1", "data.block_size=8", "model.seed=0", "model.tied=true,false")
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "outputs" / "sweeps").iterdir()
    for job in "01":
        config = read_record(folder / job).config
        assert (config["seed"], config["data"]["seed"], config["model"]["seed"]) == (1, 1, 0)
        assert config["model"]["block_size"] == config["data"]["stride"] == config["data"]["block_size"] == 8


def test_a_truncated_run_yaml_is_refused(run_folder, tielab, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run_folder, copy)
    text = (copy / "run.yaml").read_text()
    (copy / "run.yaml").write_text(text[: text.index("optimizer:\n")])
    done = tielab("rerun", copy)
    assert done.returncode == 2
    assert "run.yaml is incomplete: budget, callbacks" in done.stderr


def test_hydras_way_is_the_same_and_keeps_types_groups_and_sweeps(run_folder, train, tmp_path):
    where = ("--config-dir", run_folder, "--config-name", "run")
    typo = train(*where, "model.teid=false")
    assert (typo.returncode, typo.stderr.startswith("error: unknown key model.teid")) == (2, True)
    maybe = train(*where, "model.tied=maybe")
    assert (maybe.returncode, "not a valid bool" in maybe.stderr) == (2, True)
    group = train(*where, "logger=none")
    assert (group.returncode, "logger is a group that cannot be chosen here" in group.stderr) == (2, True)
    done = train("-m", *where, "model.tied=true,false", "width=d32", "model.num_heads=4")
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "outputs" / "sweeps").iterdir()
    original = read_record(run_folder)
    assert read_record(folder / "0").weights_hash == original.weights_hash
    assert read_record(folder / "0").rerun_of == original.run_id
    assert read_record(folder / "1").tied is False


def test_the_environment_does_not_change_a_rerun(run_folder, shell):
    config = yaml.safe_load((run_folder / "run.yaml").read_text())
    done = shell(
        "--config-dir", run_folder, "--config-name", "run", "--cfg", "job", env={"TIELAB_CACHE": "/elsewhere"}
    )
    assert yaml.safe_load(done.stdout) == {k: v for k, v in config.items() if k != "defaults"}


def test_a_checkpoint_of_the_other_arm_is_refused(run_folder, train, tiny, tmp_path):
    checkpoint = run_folder / "checkpoints" / "last.ckpt"
    done = train(*tiny, f"resume_from={checkpoint}", "model.tied=false", "model.dropout=0.1")
    assert done.returncode == 2, done.stderr
    assert "trained with model.tied=true, this run asks for model.tied=false" in done.stderr
    assert not list(tmp_path.glob("outputs/runs/*"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("seed=1", "model.seed=0", "data.seed=0"), "trained with seed=0, this run asks for seed=1"),
        (("data.batch_size=4",), "trained with data.batch_size=8, this run asks for data.batch_size=4"),
        ((), "is of a complete run (32 steps); nothing is left"),
    ],
)
def test_only_the_same_run_goes_on_from_a_checkpoint(overrides, message, run_folder, train, tiny, tmp_path):
    checkpoint = run_folder / "checkpoints" / "last.ckpt"
    done = train(*tiny, "model.dropout=0.1", f"resume_from={checkpoint}", *overrides)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert not list(tmp_path.glob("outputs/runs/*"))


def test_a_folder_with_other_things_in_it_is_left_alone(train, tiny, tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    done = train(*tiny, "hydra.run.dir=.", "resume_from=mine.txt")
    assert done.returncode == 2, done.stderr
    assert "is not empty; choose another folder" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_refused_job_of_a_sweep_does_not_stop_the_others(run_folder, train, tiny, tmp_path):
    """Found only by the job's own process: nothing is left to do from this checkpoint."""
    first = run_folder / "checkpoints" / "last.ckpt"
    done = train("-m", *tiny, "model.dropout=0.1", f"resume_from={first},null")
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("error: ") == 1
    (folder,) = (tmp_path / "outputs" / "sweeps").iterdir()
    assert read_record(folder / "1").finished
    refused = read_record(folder / "0")
    assert (refused.status, refused.error["type"]) == ("failed", "RequestError")
    assert f"failed {folder.relative_to(tmp_path)}/0: resume_from={first} is of a complete run" in done.stdout


@pytest.mark.parametrize("damage", ["truncated", "text", "pickle"])
def test_a_damaged_checkpoint_is_refused(damage, run_folder, tielab, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run_folder, copy)
    path = copy / "checkpoints" / "best.ckpt"
    whole = path.read_bytes()
    contents = {
        "truncated": whole[: len(whole) // 2],
        "text": b"hello",
        "pickle": b"cos\nsystem\n(S'touch x'\ntR.",
    }
    path.write_bytes(contents[damage])
    done = tielab("sample", copy, "--prompt", "a")
    assert done.returncode == 2, done
    assert "is truncated or not a checkpoint" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "x").exists()


def test_a_folder_that_is_no_run(tielab, tmp_path):
    for command in (("rerun", tmp_path), ("sample", tmp_path, "--prompt", "a"), ("report", tmp_path / "no")):
        done = tielab(*command)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert done.stderr.startswith("error: ")
