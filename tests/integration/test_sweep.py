"""The main job as a person does it: one command, one folder, one table that equals the records."""

import csv
import json
import re
import subprocess
import sys

import pandas as pd
import pytest
import torch
import yaml
from hydra.core.plugins import Plugins
from omegaconf import open_dict

from running import ROOT, call_main
from tielab.data.prepare import prepare
from tielab.data.windows import TrainingOrder, batch_hash, num_training_windows
from tielab.record import read_record
from tielab.request import resolve
from wandb_offline import read_offline_run, run_files

ARMS = {"0": True, "1": False}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory, tiny, cache_dir):
    """A finished sweep over both arms, with W&B offline: (folder of the sweep, what was printed)."""
    cwd = tmp_path_factory.mktemp("sweep")
    command = [sys.executable, str(ROOT / "train.py"), "-m", "model.tied=true,false", *tiny, "logger=wandb"]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    (folder,) = (cwd / "outputs" / "sweeps").iterdir()
    return folder, done


def test_one_folder_per_job_with_everything_in_it(sweep):
    folder, _ = sweep
    assert sorted(path.name for path in folder.iterdir()) == ["0", "1", "sweep.jsonl"]
    for job in ARMS:
        names = {path.name for path in (folder / job).iterdir()}
        assert names == {"run.yaml", "record.json", "metrics.csv", "run.log", "tokenizer.json", "checkpoints"}
        assert {p.name for p in (folder / job / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}


def test_records_say_what_happened(sweep):
    folder, _ = sweep
    for job, tied in ARMS.items():
        record = read_record(folder / job)
        assert record.status == "finished"
        assert record.tied is tied
        assert record.tie_observed is tied
        assert record.num_processes == 1
        assert record.num_steps == 32
        assert record.tokens_seen == 4096
        assert record.sweep == folder.name
        assert sum(n for k, n in record.parameters.items() if k != "total") == record.parameters["total"]
        assert record.validation["tokens_seen"] == 4096
        assert record.validation["num_tokens"] == record.data["validation"]["num_tokens"] - 1
        assert abs(record.initial_loss - 4.16) < 0.3  # ln 64
        assert record.train_loss < record.initial_loss
        assert record.throughput["median"] > 0
        assert record.peak_memory_bytes > 2**20
        assert record.error is None
    tied, untied = (read_record(folder / job) for job in ARMS)
    assert untied.parameters["total"] - tied.parameters["total"] == 64 * 32
    assert tied.flops_per_token == untied.flops_per_token


def test_arms_differ_in_the_head_alone(sweep):
    folder, _ = sweep
    tied, untied = (read_record(folder / job) for job in ARMS)
    for name in ("body_hash", "batch_hash", "tokens_seen", "code_hash"):
        assert getattr(tied, name) == getattr(untied, name), name
    assert tied.validation["content_hash"] == untied.validation["content_hash"]
    assert tied.data == untied.data
    assert tied.weights_hash != untied.weights_hash
    assert tied.config_hash != untied.config_hash


def test_the_record_names_the_batches_that_were_used(sweep):
    folder, _ = sweep
    record = read_record(folder / "0")
    data = record.config["data"]
    tokens = prepare(data).train.num_tokens
    num_windows = num_training_windows(tokens, data["block_size"], data["stride"])
    assert record.batch_hash == batch_hash(TrainingOrder(num_windows, data["batch_size"], data["seed"]))


def test_the_table_equals_the_records(sweep, tielab, tmp_path):
    folder, done = sweep
    file = tmp_path / "table.csv"
    printed = tielab("report", folder, "--csv", file)
    assert printed.returncode == 0, printed.stderr
    rows = list(csv.DictReader(file.open()))
    for row, job in zip(rows, ARMS, strict=True):
        record = read_record(folder / job)
        assert float(row["perplexity"]) == record.validation["perplexity"]
        assert float(row["bits_per_byte"]) == record.validation["bits_per_byte"]
        assert int(row["parameters"]) == record.parameters["total"]
        assert float(row["tokens_per_second"]) == record.throughput["median"]
        assert f"{record.validation['bits_per_byte']:.4f}" in done.stdout
        assert f"{record.validation['perplexity']:.2f}" in done.stdout
        assert f"{record.parameters['total']:,}" in done.stdout
    assert "one seed: no claim" in done.stdout
    assert "\x1b" not in done.stdout
    assert printed.stdout.strip() in done.stdout


def test_the_last_row_of_metrics_is_the_validation_of_the_record(sweep):
    folder, _ = sweep
    table = pd.read_csv(folder / "0" / "metrics.csv", float_precision="round_trip")
    record = read_record(folder / "0")
    validations = table.dropna(subset="val/bits_per_byte")
    assert list(validations["step"]) == [16, 32]
    assert validations["val/bits_per_byte"].iloc[-1] == record.validation["bits_per_byte"]
    assert validations["val/bits_per_byte"].min() == record.best_validation["bits_per_byte"]
    training = table.dropna(subset="train/loss")
    assert list(training["step"]) == [1, 10, 20, 30, 32]
    assert training["train/loss"].iloc[0] == record.initial_loss
    assert (table["tokens"] == table["step"] * 128).all()


def test_checkpoints_load_without_executing_anything(sweep):
    folder, _ = sweep
    for job, tied in ARMS.items():
        for name in ("best", "last"):
            contents = torch.load(folder / job / "checkpoints" / f"{name}.ckpt", weights_only=True)
            assert contents["tielab"]["identity"]["model.tied"] is tied
            assert ("model.lm_head.weight" in contents["state_dict"]) is not tied


def test_wandb_has_a_run_per_job(sweep):
    folder, done = sweep
    outputs = folder.parents[1]
    runs = {run.config["tied"]: run for run in map(read_offline_run, run_files(outputs))}
    assert set(runs) == {True, False}
    for job, tied in ARMS.items():
        record, run = read_record(folder / job), runs[tied]
        assert run.run_id == record.run_id
        assert run.group == folder.name
        assert run.job_type == ("tied" if tied else "untied")
        assert run.exit_code == 0
        assert run.config["model"]["tied"] is tied
        assert run.config["vocab_size"] == run.config["model"]["vocab_size"] == 64
        last = [row for row in run.history if "val/bits_per_byte" in row][-1]
        assert last["val/bits_per_byte"] == record.validation["bits_per_byte"]
        assert last["tokens"] == 4096
        assert run.summary["parameters"]["total"] == record.parameters["total"]
    assert done.stderr.count("wandb sync") == 2
    assert done.stderr.count("wandb leet") == 2


def test_progress_off_a_terminal_is_a_few_lines(sweep):
    _, done = sweep
    assert len(done.stderr.splitlines()) < 20
    assert done.stdout.count("-> outputs/sweeps/") == 2


def test_run_yaml_is_resolved(sweep):
    folder, _ = sweep
    text = (folder / "0" / "run.yaml").read_text()
    assert "${" not in text
    config = yaml.safe_load(text)
    assert config["model"]["seed"] == config["data"]["seed"] == 0
    assert config["defaults"][:3] == ["tielab_schema", "tielab_layout", "_self_"]


def test_report_reads_the_newest_sweep_by_default(sweep, tielab):
    folder, _ = sweep
    done = tielab("report", "--json", cwd=folder.parents[2])
    rows = json.loads(done.stdout)["rows"]
    assert [row["tied"] for row in rows] == [True, False]


def test_the_best_checkpoint_is_of_the_best_validation(train, tiny, tmp_path):
    """A learning rate that destroys the model after its warm-up: the first validations are the best."""
    done = train(
        *tiny, "budget.num_validations=8", "schedule.warmup_fraction=0.9", "optimizer.learning_rate=3",
        "optimizer.gradient_clip_norm=null", "trainer.precision=bf16-mixed",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "outputs" / "runs").iterdir()
    record = read_record(folder)
    step_of_best = record.best_validation["tokens_seen"] // 128
    assert step_of_best < 32
    steps = {
        name: torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)["global_step"]
        for name in ("best", "last")
    }
    assert steps == {"best": step_of_best, "last": 32}
    assert record.config["trainer"]["precision"] == "bf16-mixed"
    assert "1 run, all finished" in done.stdout


def test_a_diverged_run_is_a_failed_one(train, tiny, tmp_path):
    done = train(*tiny, "optimizer.learning_rate=1e9", "optimizer.gradient_clip_norm=null")
    assert done.returncode == 1, done.stderr
    (folder,) = (tmp_path / "outputs" / "runs").iterdir()
    record = read_record(folder)
    assert (record.status, record.error["type"]) == ("failed", "DivergedError")
    assert record.validation is None
    assert "lower optimizer.learning_rate" in done.stderr


def test_sample(sweep, tielab):
    folder, _ = sweep
    arguments = ("sample", folder / "0", "--prompt", "abc", "--tokens", 20, "--seed", 3)
    first, second = tielab(*arguments), tielab(*arguments)
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    assert first.stdout.startswith("abc")
    assert len(first.stdout) == len("abc") + 20 + len("\n")  # a char tokenizer: a token a character
    content = json.loads(tielab(*arguments, "--json").stdout)
    assert content["prompt"] + content["text"] + "\n" == first.stdout
    assert content["settings"]["seed"] == 3
    wrong = tielab("sample", folder / "0", "--prompt", "abc", "--temperature", 0)
    assert wrong.returncode == 2
    assert re.fullmatch(r"error: temperature 0.0 must be greater than 0.*\n", wrong.stderr)


def test_a_failed_job_is_reported_and_the_others_run(train, tiny, tmp_path):
    done = train(
        "-m", *tiny, "+callbacks.stop._target_=lightning.pytorch.callbacks.EarlyStopping",
        "+callbacks.stop.monitor=val/loss,nope,val/perplexity", "logger=wandb",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    (folder,) = (tmp_path / "outputs" / "sweeps").iterdir()
    records = [read_record(folder / job) for job in "012"]
    assert [record.status for record in records] == ["finished", "failed", "finished"]
    assert "nope" in records[1].error["message"]
    assert "Traceback" in records[1].error["traceback"]
    assert records[1].validation is None
    assert f"FAILED outputs/sweeps/{folder.name}/1: RuntimeError" in done.stderr
    assert "2 of 3 runs" in done.stdout
    assert "failed" in done.stdout
    assert "nope" in (folder / "1" / "run.log").read_text()
    runs = map(read_offline_run, run_files(tmp_path / "outputs"))
    status = {run.run_id: run.exit_code for run in runs}
    assert [status[record.run_id] for record in records] == [0, 1, 0]


@pytest.fixture
def composed_jobs(monkeypatch):
    """The overrides of each job that Hydra composes a config for, in this process."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl

    seen = []
    whole = ConfigLoaderImpl.load_sweep_config

    def counted(self, master, overrides):
        seen.append(overrides)
        return whole(self, master, overrides)

    monkeypatch.setattr(ConfigLoaderImpl, "load_sweep_config", counted)
    return seen


@pytest.mark.parametrize(("around", "times"), [((), 1), (("+hydra.job.env_set.TIELAB_ASKED=yes",), 4)])
def test_jobs_of_the_same_groups_are_composed_once_unless_hydra_is_to_do_something_around_them(
    around, times, train, tiny, composed_jobs
):
    done = train("-m", "seed=0,1,2", *tiny, "budget.tokens=256", "budget.num_validations=1", *around)
    assert done.returncode == 0, done.stderr
    assert len(composed_jobs) == times


@pytest.mark.parametrize(
    "asked",
    [
        ("width=d64,d128", "model.embed_dim=32,96", "seed=0,1"),  # an option of a group and a key of it
        ("tying=tied_scaled,untied", "vocab=bpe1024,byte", "~callbacks.best", "+callbacks.mine={x: 1}"),
        ("budget={tokens: 1000},{tokens: 2000}", "matching=params,width"),
    ],
)
def test_a_job_is_what_hydra_makes_of_all_its_overrides(asked, monkeypatch, tmp_path):
    Plugins.instance()  # imports them anew, so before the class is taken
    from hydra_plugins.tielab_sweeper import CheckedSweeper

    seen = []

    def compare(self, arguments):
        for overrides in self.combinations(self.parse(arguments)):
            whole = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
            with open_dict(whole):
                whole.pop("hydra")
            seen.append(self.compose(overrides) == resolve(whole, self.config.hydra, overrides))

    monkeypatch.setattr(CheckedSweeper, "sweep", compare)
    assert call_main(["-m", *asked], tmp_path, monkeypatch) == 0
    assert len(seen) >= 4
    assert all(seen)
