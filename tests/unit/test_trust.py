"""What comes from a stranger is values: nothing in it is called, nothing of it writes elsewhere."""

import io
import json
import os
import pickle
import tarfile
import zipfile
from contextlib import redirect_stderr
from pathlib import Path

import lightning.pytorch as L
import pytest
import torch
import yaml
from click.testing import CliRunner
from lightning.pytorch.loggers import Logger

from running import ROOT, TINY, config_of
from tielab import launch
from tielab.build import build
from tielab.checkpoint import WholeCheckpointIO, check_weights, load_weights, read_checkpoint
from tielab.checks import check_config
from tielab.cli import main as tielab
from tielab.config import config_hash, follow_links
from tielab.errors import RequestError, printable
from tielab.folder import run_yaml
from tielab.models.minigpt import MiniGPT
from tielab.record import Record, write_record
from tielab.trust import check_arguments, read_run_yaml

CONF = ROOT / "conf"
MODEL_CHECKPOINT = "lightning.pytorch.callbacks.ModelCheckpoint"
PROGRESS = "tielab.training.progress.ProgressBar"


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """A resolved config, as our own runs have it."""
    cache = tmp_path_factory.mktemp("cache")
    return config_of(*TINY, "data.paths=[some.txt]", "logger=wandb", f"data.cache_dir={cache}")


@pytest.fixture
def run(config, tmp_path, monkeypatch):
    """A run's folder in the place that ``output_dir`` gives it, and this folder as the current one."""
    monkeypatch.setenv("TIELAB_CACHE", config["data"]["cache_dir"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "outputs" / "runs" / "x"
    folder.mkdir(parents=True)
    (folder / "run.yaml").write_text(run_yaml(config))
    return folder


@pytest.fixture
def marker(tmp_path):
    """A file that an attempt would make."""
    return tmp_path / "marker"


def refusal(run, *overrides):
    """The one line with which ``train.py`` refuses to repeat a run, before Hydra has seen it."""
    os.environ["HYDRA_FULL_ERROR"] = "0"  # main sets it; the fixture puts it back
    err = io.StringIO()
    with redirect_stderr(err):
        status = launch.main(CONF, ["--config-dir", str(run), "--config-name", "run", *overrides])
    assert status == 2, err.getvalue()
    assert err.getvalue().startswith("error: ")
    assert len(err.getvalue().splitlines()) == 1
    return err.getvalue()


def change(run, old, new):
    text = (run / "run.yaml").read_text()
    assert old in text
    (run / "run.yaml").write_text(text.replace(old, new, 1))


def test_our_own_run_yaml_is_taken_and_means_the_same(run, config):
    assert read_run_yaml(run / "run.yaml") == config
    check_arguments(["--config-dir", str(run), "--config-name", "run"])


@pytest.mark.parametrize(
    "section",
    [
        "callbacks: {x: {_target_: os.system, command: touch marker}}",
        "launcher: {_target_: os.system, command: touch marker}",
        "sweeper: {_target_: os.system, command: touch marker}",
        "job_logging: {version: 1, root: {handlers: [h]}, handlers: {h: {'()': os.system, "
        "command: touch marker}}}",
        "hydra_logging: {version: 1, root: {handlers: [h]}, handlers: {h: {'()': os.system, "
        "command: touch marker}}}",
        "job: {env_set: {LD_PRELOAD: /tmp/x.so}}",
        "searchpath: ['file:///tmp']",
        "run: {dir: /tmp/elsewhere}",
    ],
)
def test_hydras_own_section_is_refused(run, marker, section):
    with (run / "run.yaml").open("a") as file:
        file.write(f"hydra:\n  {section}\n")
    assert "has a key that is not of a run: hydra" in refusal(run)
    assert not marker.exists()


@pytest.mark.parametrize(
    "entry",
    [
        "override hydra/launcher: evil", "override /hydra/job_logging: evil", "/hydra/callbacks: [evil]",
        "hydra/launcher@_here_: null", "data: ../../evil", "evil", "model: nano", "'model@hydra': null",
    ],
)  # fmt: skip
def test_a_foreign_default_is_refused(run, entry):
    change(run, "- model: null", f"- {entry}")
    assert "its defaults list asks for another config" in refusal(run)


def test_another_schema_is_refused(run):
    change(run, "- tielab_schema", "- my_schema")
    assert "its defaults list is not the one of a run" in refusal(run)
    (run / "run.yaml").write_text("_target_: os.system\ncommand: touch marker\n")
    assert "has a key that is not of a run: _target_" in refusal(run)


@pytest.mark.parametrize(
    "name",
    ["tielab_schema.yaml", "tielab_layout.yaml", "hydra/sweeper/tielab.yaml", "hydra/launcher/basic.yaml",
     "trainer/cpu.yaml", "width/d64.yaml", "experiments/x.yaml"],
)  # fmt: skip
def test_a_file_that_would_stand_for_a_part_of_the_config_is_refused(run, marker, name):
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).write_text("# @package hydra.callbacks\nx: {_target_: os.system, command: touch marker}\n")
    assert "is not of a run and would change the config" in refusal(run)
    assert not marker.exists()


@pytest.mark.parametrize("header", ["# @package hydra", "#@package _global_.hydra", " # @package model"])
def test_a_package_header_is_refused(run, header):
    text = (run / "run.yaml").read_text()
    (run / "run.yaml").write_text(f"{header}\n{text}")
    assert "has a package header" in refusal(run)


@pytest.mark.parametrize(
    "value",
    [
        "${oc.env:SECRET}", "x ${oc.env:SECRET} y", "${oc.decode:'${oc.env:SECRET}'}", "${oc.create:{a: 1}}",
        "${hydra:runtime.cwd}", "${now:%Y}", "${tielab.threads:1}", "${seed}", "${${seed}}", r"\${seed}",
        "${oc.env:", "{'${oc.env:SECRET}': 1}", "[{a: ['${oc.env:SECRET}']}]",
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", ["embed_dim: 32", "project: tielab", "bar_seconds: 0.25", "- some.txt"])
def test_an_interpolation_is_refused_and_says_nothing(run, monkeypatch, place, value):
    monkeypatch.setenv("SECRET", "s3cr3t")
    quoted = value if value.startswith(("{", "[")) else json.dumps(value)
    change(run, place, "- " + quoted if place.startswith("-") else place.split(":")[0] + ": " + quoted)
    message = refusal(run)
    assert "holds an interpolation; a run.yaml has values only" in message
    assert "s3cr3t" not in message


def test_our_own_runs_never_hold_one(config):
    """Or their repetition would be refused."""
    for damaged in (
        {**config, "data": {**config["data"], "paths": ["${oc.env:HOME}.txt"]}},
        {**config, "callbacks": {"${x}": {"_target_": PROGRESS}}},
    ):
        with pytest.raises(RequestError, match="begins an interpolation; use another name"):
            check_config(damaged)


def laughs(depth):
    lines = "".join(f"  a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, depth))
    return f"callbacks:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n{lines}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x: !!python/object/apply:os.system ['touch marker']", "could not determine a constructor"),
        ("x: !!python/name:os.system", "could not determine a constructor"),
        ("x: !!python/object/apply:pathlib.PosixPath [x]", "could not determine a constructor"),
        (laughs(10), "it has an alias"),
        ("a: &a {b: 1}\nc: {<<: *a}", "it has an alias"),
        ("seed: 1\nseed: 2", "a key twice"),
        ("model: {tied: true, tied: false}", "a key twice"),
        ("[" * 100_000, "is not the config of a run"),
        ("{a: " * 10_000, "is not the config of a run"),
        ("seed: 1\n---\nseed: 2", "is not the config of a run"),
        ("#" * 2_000_000, "is larger than"),
        ("seed: " + "9" * 10_000, "is not the config of a run"),
        ("seed: 2001-99-99", "is not the config of a run"),
        ("seed: 2001-01-01", "seed is a date, not text or a number"),
        ("seed: !!binary aGVsbG8=", "seed is a bytes"),
        ("seed: !!set {a}", "seed is a set"),
        ("? [a, b]\n: 1", "is not the config of a run"),
        ("1: 2", "has a key that is not of a run: 1"),
        ("just text", "found no keys"),
        ("", "found no keys"),
        ("- a", "found no keys"),
        ("\0", "is not the config of a run"),
        ('seed: "\\e]0;x\\a"', "holds control characters"),
    ],
    ids=range(23),
)
def test_yaml_that_is_not_plain_values_is_refused(run, marker, text, message):
    (run / "run.yaml").write_text(text)
    assert message in refusal(run)
    assert not marker.exists()


def test_bytes_that_are_no_text_are_refused(run):
    (run / "run.yaml").write_bytes(b"\xff\xfe\x00")
    assert "is not the config of a run" in refusal(run)


def test_types_are_those_of_the_schema(run):
    change(run, "embed_dim: 32", "embed_dim: {a: 1}")
    with pytest.raises(RequestError, match=r"run\.yaml: model\.embed_dim"):
        read_run_yaml(run / "run.yaml")


def test_hydras_other_ways_to_read_a_file_are_refused(run):
    for arguments, message in (
        (["--experimental-rerun", "x.pickle"], "--experimental-rerun runs what is in a pickle"),
        (["--config-path", str(run), "--config-name", "run"], "--config-path is not taken"),
        (["-cp", str(run), "-cn", "run"], "--config-path is not taken"),
        (["--config-name", "../outputs/runs/x/run"], "is a path"),
        (["-cd", str(run), "-cn", "../x/run.yaml"], "is a path"),
    ):
        with pytest.raises(RequestError, match=message):
            check_arguments(arguments)


@pytest.mark.parametrize(
    "arguments",
    [("-cd", "{}", "-cn", "run"), ("--config-d={}", "--config-n", "run.yaml"), ("-cd={}", "-cn", "other"),
     ("-m", "seed=1", "--config-dir", "{}", "seed=2", "--config-name", "run")],
)  # fmt: skip
def test_every_spelling_of_the_folder_is_looked_at(run, arguments):
    with (run / "run.yaml").open("a") as file:
        file.write("hydra: {}\n")
    (run / "other.yaml").write_text((run / "run.yaml").read_text())
    with pytest.raises(RequestError, match="has a key that is not of a run: hydra"):
        check_arguments([argument.format(run) for argument in arguments])


@pytest.mark.parametrize("place", ["/somewhere", "../up", "~/home", "a/../../b"])
@pytest.mark.parametrize("key", ["output_dir", "data.cache_dir"])
def test_a_foreign_place_must_be_named(run, config, key, place):
    own = config["data"]["cache_dir"] if key == "data.cache_dir" else "outputs"
    change(run, f"{key.rpartition('.')[2]}: {own}", f"{key.rpartition('.')[2]}: {place}")
    assert f"would write to {key}={place}, which is not in use here; add {key}={place}" in refusal(run)
    where = ["--config-dir", str(run), "--config-name", "run"]
    check_arguments([*where, f"{key}={place}"])
    check_arguments([*where, f"++{key}=/other"])
    check_arguments([*where, "--cfg", "job"])  # starts nothing


def test_a_foreign_address_must_be_named(run):
    address = "http://127.0.0.1:9/a.txt"
    change(run, "url: null", f"url: {{address: '{address}', sha256: null}}")
    change(run, "corpus: text", "corpus: url")
    assert f"would download data.url.address={address}, which was not done here before" in refusal(run)
    where = ["--config-dir", str(run), "--config-name", "run"]
    check_arguments([*where, f"data.url.address={address}"])
    check_arguments([*where, "--cfg", "job"])  # starts nothing


def test_a_run_of_before_there_were_addresses_is_taken(run, config):
    text = (run / "run.yaml").read_text()
    (run / "run.yaml").write_text(text.replace("  text_key: text\n", "").replace("  url: null\n", ""))
    assert (run / "run.yaml").read_text() != text
    found = read_run_yaml(run / "run.yaml")
    assert found == config
    earlier = {**config, "data": {k: v for k, v in config["data"].items() if k not in ("text_key", "url")}}
    assert config_hash(found) == config_hash(earlier)
    other = {**config, "data": {**config["data"], "text_key": "body"}}
    assert config_hash(other) != config_hash(config)


def test_places_of_our_own_need_no_word(run, config, tmp_path):
    where = ["--config-dir", str(run), "--config-name", "run"]
    change(run, "output_dir: outputs", f"output_dir: {tmp_path / 'outputs'}")  # where this run lies
    check_arguments(where)
    job = tmp_path / "outputs" / "sweeps" / "s" / "0"
    job.mkdir(parents=True)
    (job / "run.yaml").write_text((run / "run.yaml").read_text())
    check_arguments(["--config-dir", str(job), "--config-name", "run"])
    used = tmp_path / "used"  # a cache that is not the default one any more
    (used / "text-char-0123").mkdir(parents=True)
    change(run, f"cache_dir: {config['data']['cache_dir']}", f"cache_dir: {used}")
    with pytest.raises(RequestError, match=r"data\.cache_dir="):
        check_arguments(where)
    (used / "text-char-0123" / "meta.json").touch()
    check_arguments(where)


def test_the_dashboard_follows_the_output_folder(config):
    """Else a repetition with another output_dir would write to the old one."""
    moved = json.loads(json.dumps(config)) | {"output_dir": "elsewhere"}
    follow_links(moved, config, {"output_dir"})
    assert moved["logger"]["wandb"]["save_dir"] == "elsewhere"
    follow_links(moved, {"model": 3}, set())  # a record of somebody else
    without = {**moved, "logger": {}}
    follow_links(without, config, set())
    assert without["logger"] == {}


def test_an_input_scale_that_is_the_root_of_the_width_follows_it(config):
    scaled = json.loads(json.dumps(config))
    scaled["model"] |= {"embed_dim": 64, "embed_scale": 8.0}

    def repeated(scale, *overridden):
        wide = json.loads(json.dumps(scaled))
        wide["model"] |= {"embed_dim": 256, "embed_scale": scale}
        follow_links(wide, scaled, {*overridden})
        return wide["model"]["embed_scale"]

    assert repeated(8.0) == 16.0
    assert repeated(8.0, "model.embed_scale") == 8.0
    assert repeated(1.0) == 1.0  # another option of tying
    scaled["model"] |= {"embed_dim": 1, "embed_scale": 1.0}
    assert repeated(1.0) == 1.0


@pytest.mark.parametrize("kind", [L.Callback, Logger, MiniGPT])
@pytest.mark.parametrize(
    "target",
    [
        "os.system", "posix.system", "subprocess.run", "subprocess.Popen", "builtins.eval", "builtins.exec",
        "builtins.__import__", "importlib.import_module", "pickle.loads", "shutil.rmtree", "ctypes.CDLL",
        "torch.load", "torch.hub.load", "torch.os.system", "torch.utils.collect_env.run", "torch.nn.Module",
        "torch.jit.load", "torch.utils.cpp_extension.load_inline", "torch.serialization.pickle.loads",
        "tielab.launch.os.system", "tielab.code_version.subprocess.run", "tielab.launch.main",
        "tielab.build.build",
        "tielab.checkpoint.os.remove", "tielab.run.shutil.rmtree", "tielab.record.write_atomic",
        "tielab.build.__builtins__.eval", "tielab.build.__loader__.load_module", "tielab.launch.__dict__",
        "tielab.tracking.wandb.os.system", "tielab.tracking.wandb.finish_wandb", "wandb.init",
        "lightning.pytorch.Trainer", "lightning.pytorch.callbacks.Callback.__init__", "lightning", "tielab",
        "tielab.build.T.__class__", "lightning.pytorch.callbacks.ModelCheckpoint.__subclasses__",
        "", ".", "tielab..build", "tielab.no.such", "../evil", "/tmp/evil", 3, ["os.system"], {"a": 1}, True,
    ],
    ids=str,
)  # fmt: skip
def test_nothing_but_a_class_of_the_kind_is_a_target(marker, target, kind):
    with pytest.raises(RequestError) as error:
        build({"_target_": target, "command": f"touch {marker}"}, kind)
    assert "\n" not in str(error.value)
    assert not marker.exists()


@pytest.mark.parametrize(
    "extra",
    [
        {"_args_": ["touch marker"]}, {"_partial_": True}, {"_recursive_": False}, {"_convert_": "none"},
        {"bar_seconds": {"_target_": "os.system", "command": "touch marker"}},
        {"bar_seconds": [{"a": [{"_target_": "os.system", "command": "touch marker"}]}]},
        {"bar_seconds": {"a": {"b": {"_target_": PROGRESS}}}},
        {"no_such_argument": 1},
    ],
    ids=str,
)  # fmt: skip
def test_arguments_are_plain_values_by_name(extra, marker, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = next(iter(extra))
    message = "is not taken here" if name.startswith("_") else "of its own|unexpected keyword"
    with pytest.raises(RequestError, match=message):
        build({"_target_": PROGRESS, **extra}, L.Callback)
    assert not marker.exists()


def test_an_interpolation_that_reaches_an_object_stays_text(monkeypatch):
    monkeypatch.setenv("SECRET", "s3cr3t")
    node = {"_target_": MODEL_CHECKPOINT, "filename": "${oc.env:SECRET}"}
    assert build(node, L.Callback).filename == "${oc.env:SECRET}"


@pytest.mark.parametrize("node", [None, 3, "os.system", [], {}, {"_target_": None}], ids=str)
def test_a_node_without_a_target_is_refused(node):
    with pytest.raises(RequestError, match="has no _target_"):
        build(node, L.Callback)


@pytest.mark.parametrize(
    "arguments",
    [
        {"dirpath": "/elsewhere"}, {"dirpath": "weights"}, {"dirpath": ".."}, {"dirpath": "outputs/../x"},
        {"dirpath": "~"}, {"dirpath": "~/x"}, {"dirpath": "outputs/$HOME"}, {"dirpath": "outputs/link/x"},
        {"dirpath": "file:///elsewhere"}, {"dirpath": "local:/elsewhere"}, {"dirpath": "outputs\0"},
        {"dirpath": "s3://bucket/x"}, {"filename": "../../x"}, {"filename": "/elsewhere/x"},
        {"filename": "a/../../../x"}, {"filename": "~/x"}, {"monitor": "/elsewhere"},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("target", [MODEL_CHECKPOINT, "tielab.tracking.wandb.wandb_logger"])
def test_no_argument_leads_out_of_the_output_folder(target, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    (outputs / "link").symlink_to(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    kind = L.Callback if target == MODEL_CHECKPOINT else Logger
    with pytest.raises(RequestError, match="leads outside the run"):
        build({"_target_": target, **arguments}, kind, [outputs])
    with pytest.raises(RequestError, match="leads outside the run"):  # however deep it is
        build({"_target_": target, "settings": {"dirs": [{"a": list(arguments.values())}]}}, kind, [outputs])
    assert sorted(tmp_path.rglob("*")) == before


def test_places_below_the_output_folder_are_taken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for dirpath in ("outputs/x", str(tmp_path / "outputs" / "x"), None):
        node = {
            "_target_": MODEL_CHECKPOINT,
            "dirpath": dirpath,
            "filename": "{epoch}",
            "monitor": "val/loss",
        }
        assert build(node, L.Callback, [Path("elsewhere"), Path("outputs")]).filename == "{epoch}"


def test_checkpoints_are_written_and_deleted_within_the_run_only(tmp_path, monkeypatch):
    """Wherever a file name's template or the state of another checkpoint leads."""
    monkeypatch.chdir(tmp_path)
    run, precious = tmp_path / "run", tmp_path / "precious"
    run.mkdir()
    precious.mkdir()
    (precious / "file").touch()
    (run / "link").symlink_to(precious)
    io = WholeCheckpointIO([run])
    io.save_checkpoint({}, run / "sub" / "a.ckpt")
    io.remove_checkpoint(run / "sub" / "a.ckpt")
    assert not (run / "sub" / "a.ckpt").exists()
    for path in (precious / "x", run / ".." / "x", run / "link" / "x", "x"):
        with pytest.raises(RequestError, match="is outside the run"):
            io.save_checkpoint({}, path)
    for path in (
        precious,
        precious / "file",
        f"local://{precious}",
        f"file://{precious}",
        run / "link" / "file",
    ):
        with pytest.raises(RequestError, match="is outside the run"):
            io.remove_checkpoint(path)
    here = WholeCheckpointIO([tmp_path])
    with pytest.raises(RequestError, match="is outside the run"):  # Lightning compares the beginning only
        here.remove_checkpoint(run / ".." / "precious" / "file")
    here.remove_checkpoint(f"local://{precious}")  # a name like any other, of nothing here
    with pytest.raises(OSError, match="precious"):
        here.remove_checkpoint(precious)  # a folder is no checkpoint
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "link", "precious", "run", "sub"]


class Evil:
    """Unpickled, it runs a command."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def zipped(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"cos\nsystem\n(S'touch marker'\ntR.")
        archive.writestr("archive/version", "3\n")


def tarred(path):
    with tarfile.open(path, "w") as archive:
        for name in ("storages", "tensors", "pickle"):
            info = tarfile.TarInfo(name)
            data = b"cos\nsystem\n(S'touch marker'\ntR."
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


OURS = {"tielab": {"identity": {}}, "global_step": 1, "state_dict": {}}
NO_CHECKPOINTS = {
    "empty": lambda path: path.touch(),
    "text": lambda path: path.write_text("hello"),
    "folder": lambda path: path.mkdir(),
    "pickle": lambda path: path.write_bytes(b"cos\nsystem\n(S'touch marker'\ntR."),
    "saved": lambda path: torch.save({**OURS, "x": Evil("touch marker")}, path),
    "saved as before torch 1.6": lambda path: torch.save(
        {**OURS, "x": Evil("touch marker")}, path, _use_new_zipfile_serialization=False
    ),
    "in the hyper-parameters": lambda path: torch.save(
        {**OURS, "hyper_parameters": {"a": [Evil("touch marker")]}}, path
    ),
    "in the state": lambda path: torch.save({**OURS, "state_dict": {"a": Evil("touch marker")}}, path),
    "in the callbacks": lambda path: torch.save({**OURS, "callbacks": {"a": Evil("touch marker")}}, path),
    "module": lambda path: torch.save(torch.nn.Linear(1, 1), path),
    "zip": zipped,
    "tar": tarred,
    "TorchScript": lambda path: torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), path),
}


@pytest.mark.parametrize("force", ["0", "1"])
@pytest.mark.parametrize("name", NO_CHECKPOINTS)
@pytest.mark.filterwarnings("ignore")
def test_a_file_that_is_no_checkpoint_is_refused_and_runs_nothing(name, force, marker, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", force)
    path = tmp_path / "x.ckpt"
    NO_CHECKPOINTS[name](path)
    with pytest.raises(RequestError, match="is truncated or not a checkpoint") as error:
        read_checkpoint(path, {})
    assert "\n" not in str(error.value)
    for weights_only in (True, False, None):  # as Lightning reads it when a run goes on
        with pytest.raises((pickle.UnpicklingError, RuntimeError, EOFError, OSError, KeyError)):
            WholeCheckpointIO().load_checkpoint(path, weights_only=weights_only)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ([1, 2], "was not written by tielab"),
        (torch.zeros(3), "was not written by tielab"),
        ({"state_dict": {}, "pytorch-lightning_version": "2.6.0", "global_step": 3}, "was not written by"),
        ({"tielab": 3}, "does not say of what run it is"),
        ({"tielab": {"identity": [1]}}, "does not say of what run it is"),
        ({"tielab": {}}, "does not say of what run it is"),
    ],
    ids=str,
)
def test_a_checkpoint_of_something_else_is_refused(contents, message, tmp_path):
    torch.save(contents, tmp_path / "x.ckpt")
    with pytest.raises(RequestError, match=message):
        read_checkpoint(tmp_path / "x.ckpt", {})


def test_weights_must_fit_the_model():
    model = MiniGPT(vocab_size=9, block_size=4, embed_dim=8, num_layers=1)
    state = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    load_weights(model, {"state_dict": state})
    name = "model.token_embed.weight"
    for damaged in (
        None, [1], {}, {k: v for k, v in state.items() if k != name}, {**state, name: torch.zeros(3, 8)},
        {**state, name: [1.0]}, {**state, "model.more": torch.zeros(1)}, {**state, 3: torch.zeros(1)},
    ):  # fmt: skip
        with pytest.raises(RequestError, match="does not fit the model"):
            check_weights(model, {"state_dict": damaged})
    with pytest.raises(
        RequestError, match=r"token_embed\.weight is a tensor \(3, 8\), expected a tensor \(9, 8\)"
    ):
        load_weights(model, {"state_dict": {**state, name: torch.zeros(3, 8)}})


ESCAPE = "\x1b]0;title\x07\x1b[2J\x9b1m"


def escaped(node):
    """Every text in a record with an escape sequence, every free key too."""
    if isinstance(node, dict):
        return {
            f"{key}{ESCAPE}" if key == "callbacks" else key: escaped(value) for key, value in node.items()
        }
    return f"{node}{ESCAPE}" if isinstance(node, str) else node


@pytest.mark.parametrize("how", [[], ["--markdown"], ["--json"], ["--csv", "-"]], ids=str)
def test_a_record_says_nothing_to_the_terminal(how, config, tmp_path):
    for name, tied in (("a", True), ("b", False)):
        record = Record("x", "finished", escaped(config), "", tied, 0)
        record.validation = {"bits_per_byte": 1.0, "perplexity": 2.0, "content_hash": ESCAPE, "nats": 1.0}
        record.run_id = record.sweep = record.host = f"../../x{ESCAPE}"
        record.config[f"optimizer{ESCAPE}"] = {"x": name}
        record.status = "finished" if tied else "failed"
        record.error = None if tied else {"type": "E", "message": ESCAPE, "traceback": ESCAPE}
        (tmp_path / name).mkdir()
        write_record(tmp_path / name, record)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "record.json").write_text(json.dumps({"schema_version": ESCAPE}))
    for folder in (tmp_path, tmp_path / "c"):
        done = CliRunner().invoke(tielab, ["report", str(folder), *how], color=True)
        assert done.exit_code == (0 if folder == tmp_path else 2)
        assert not set(done.output) & set("\x1b\x07\x9b")


def test_printable_spells_control_characters_out():
    assert printable("a\x1b[1mé\x9b\n\t\u00a0") == r"a\x1b[1mé\x9b\n\t" + "\u00a0"
    assert printable("a\n\x07", keep="\n") == "a\n\\x07"
    assert str(RequestError("a\nb\x1b")) == r"a b\x1b"


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "3", "{", '{"characters": 3}', '{"version": "1.0"}'], ids=str
)
def test_a_tokenizer_that_is_none_is_refused(run, text, tmp_path):
    (run / "tokenizer.json").write_text(text)
    done = CliRunner().invoke(tielab, ["sample", str(run), "--prompt", "a"])
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
    assert "cannot be read as a tokenizer" in done.stderr


def test_processes_of_a_run_import_nothing_from_the_current_folder(tmp_path, monkeypatch):
    """It may be the stranger's run, with a yaml.py in it."""
    from tielab import processes

    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    started = []
    monkeypatch.setattr(processes, "_spawn", lambda folder, environment: started.append(environment))
    monkeypatch.setattr(processes, "_wait_for", lambda children, received: processes.Ending(0))
    trainer = {"accelerator": "cpu", "devices": 1, "num_nodes": 1, "num_threads": 1}
    processes.start_and_wait({"launch": "spawn", "trainer": trainer}, tmp_path)
    assert started[0]["PYTHONSAFEPATH"] == os.environ["PYTHONSAFEPATH"] == "1"


def test_the_forced_environment_would_matter(marker, tmp_path, monkeypatch):
    """The attempts above are real: the same file read without weights_only does run the command."""
    monkeypatch.chdir(tmp_path)
    NO_CHECKPOINTS["saved"](tmp_path / "x.ckpt")
    torch.load(tmp_path / "x.ckpt", weights_only=False)
    assert marker.exists()
    marker.unlink()
    assert yaml.unsafe_load("!!python/object/apply:os.system ['touch marker']") == 0
    assert marker.exists()
