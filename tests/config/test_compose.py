"""Every option composes; every wrong request is one line, status 2, and leaves nothing behind."""

import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf.errors import OmegaConfBaseException

from running import ROOT, config_of
from tielab.checks import check_config
from tielab.config import RUN_ONLY_KEYS, config_hash, known_keys
from tielab.errors import RequestError

CONF = ROOT / "conf"
OPTIONS = sorted(
    f"{path.parent.name}={path.stem}" for path in CONF.glob("*/*.yaml") if not path.stem.startswith("_")
)
NEEDS = {
    "vocab=bpe": ["data.tokenizer.vocab_size=700"],
    "vocab=gpt2": ["data.tokenizer.path=/some/folder"],
    "data=text": ["data.paths=[a.txt]"],
    "data=url": ["data.url.address=https://example.org/a.txt"],
    "data=hub": ["data.hub.name=a/b", f"data.hub.revision={'0' * 40}"],
}


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_composes_and_can_be_run(option):
    check_config(config_of(option, *NEEDS.get(option, [])))


def test_defaults():
    config = config_of()
    assert config["model"]["tied"] is True
    assert config["model"]["vocab_size"] == config["data"]["tokenizer"]["vocab_size"] == 4096
    assert (config["model"]["embed_dim"], config["model"]["num_layers"]) == (128, 4)


@pytest.mark.parametrize(
    ("overrides", "key", "value"),
    [
        (["tying=untied"], "tied", False),
        (["tying=untied", "model.tied=true"], "tied", True),
        (["width=d64"], "embed_dim", 64),
        (["width=d64", "model=nano"], "embed_dim", 64),
        (["vocab=bpe1024"], "vocab_size", 1024),
        (["data.block_size=32"], "block_size", 32),
        (["seed=7"], "seed", 7),
    ],
)
def test_groups_set_the_model(overrides, key, value):
    assert config_of(*overrides)["model"][key] == value


def test_gpt2_small_preset_has_the_literal_count():
    import torch

    from tielab.models.accounting import parameter_ledger
    from tielab.models.minigpt import MiniGPT

    model = config_of("model=gpt2_small", "vocab=gpt2", "data.block_size=1024", "data.tokenizer.path=x")[
        "model"
    ]
    arguments = {k: v for k, v in model.items() if k != "_target_"}
    with torch.device("meta"):
        assert parameter_ledger(MiniGPT(**arguments))["total"] == 124_439_808
        default = config_of()["model"]
        ledger = parameter_ledger(MiniGPT(**{k: v for k, v in default.items() if k != "_target_"}))
        assert ledger["total"] == 1_334_016


WRONG = [
    (["model.num_heads=3"], "model.embed_dim=128 cannot be split over model.num_heads=3"),
    (["model.vocab_size=300"], "model.vocab_size=300 differs from data.tokenizer.vocab_size=4096"),
    (["model.block_size=64"], "model.block_size=64 differs from data.block_size=128"),
    (["trainer.devices=0"], "trainer.devices=0 is out of range"),
    (["trainer.devices=2"], "trainer.devices=2 x trainer.num_nodes=1 needs trainer=ddp, fsdp, ddp_cpu or"),
    (["trainer=ddp_cpu", "trainer.devices=3"], "data.batch_size=4 cannot be split over 3 processes"),
    (["trainer.accumulate_grad_batches=3"], "cannot be split over 1 processes x 3 micro-batches"),
    (["seed=4294967296"], "seed=4294967296 is out of range: it must be at most 4294967295"),
    (["budget.tokens=99999999999999999999"], "is out of range: it must be at most"),
    (["budget.tokens=null"], "budget.tokens=null and budget.bytes=null ask for no training"),
    (["budget.bytes=1000"], "budget.tokens=400000 and budget.bytes=1000 are two budgets"),
    (["budget.tokens=null", "budget.bytes=0"], "budget.bytes=0 is out of range"),
    (
        ["budget.tokens=null", "budget.bytes=9999999999999999"],
        "budget.bytes=9999999999999999 is out of range",
    ),
    (["data.train_tokens=0"], "data.train_tokens=0 is out of range"),
    (["trainer.precision=16-mixed"], "trainer.precision=16-mixed is not one of 32-true"),
    (["trainer.strategy=ddp_spawn"], "trainer.strategy=ddp_spawn is not one of auto, ddp"),
    (["launch=inline", "trainer=ddp_cpu", "trainer.devices=2"], "launch=inline runs one process, 2 were"),
    (["trainer=fsdp_cpu", "trainer.precision=64-true"], "precision=64-true does not go with strategy fsdp"),
    (["trainer.tensor_parallel_size=2"], "trainer.tensor_parallel_size=2 needs trainer=fsdp"),
    (
        ["trainer=fsdp", "trainer.devices=3", "trainer.tensor_parallel_size=2"],
        "trainer.tensor_parallel_size=2 does not divide the 3 processes",
    ),
    (
        ["trainer=fsdp", "trainer.devices=3", "trainer.tensor_parallel_size=3"],
        "model.hidden_dim=512 cannot be split over trainer.tensor_parallel_size=3",
    ),
    (["trainer=fsdp", "trainer.tensor_parallel_size=0"], "trainer.tensor_parallel_size=0 is out of range"),
    (["trainer.precision=int8"], "trainer.precision=int8 is not one of 32-true"),
    (["model.dropout=1"], r"model.dropout=1.0 is out of range: it must lie in [0, 1)"),
    (["schedule.final_fraction=1.5"], "schedule.final_fraction=1.5 is out of range: it must lie in [0, 1]"),
    (["optimizer.learning_rate=nan"], "optimizer.learning_rate=nan is out of range"),
    (["optimizer.learning_rate=inf"], "optimizer.learning_rate=inf is out of range"),
    (["optimizer.weight_decay=-1"], "optimizer.weight_decay=-1.0 is out of range"),
    (["data.stride=129"], "data.stride=129 would skip tokens"),
    (["data.eval_stride=129"], "data.eval_stride=129 would skip tokens"),
    (
        ["data.check_strides=[64,129]"],
        "check_strides=[64, 129] has 129: a stride must lie between 1 and",
    ),
    (["data.check_strides=[0]"], "data.check_strides=[0] has 0: a stride must lie between 1 and"),
    (["data.check_strides=[128]"], "data.check_strides=[128] has 128, which data.eval_stride evaluates"),
    (["data.check_strides=[64,32,64]"], "data.check_strides=[64, 32, 64] has 64 twice"),
    (["vocab=byte", "data.tokenizer.vocab_size=300"], "a byte tokenizer has exactly 256 ids"),
    (["vocab=bpe", "data.tokenizer.vocab_size=255"], "a byte-level BPE starts from 256 bytes"),
    (["vocab=gpt2"], "data.tokenizer.kind=file needs data.tokenizer.path"),
    (["data=text"], "data=text needs files"),
    (["data=url"], "data=url needs a file: add data.url.address=https://..."),
    (["data=url", "data.url.address=ftp://a/b"], "data.url.address=ftp://a/b is no address of a file"),
    (["data=url", "data.url.address=http://a/b", "data.url.sha256=A1"], "data.url.sha256=A1 is no hash"),
    (["data=url", "data.url.address=http://a/b", "data.document=file"], "belong to data=text"),
    (["data=url", "data.url.address=http://a/b", "+data.url.sha=1"], "unknown key data.url.sha;"),
    (["data=hub", "data.hub.name=a/b"], "data.hub.revision=None is no commit"),
    (["data=hub", "data.hub.name=a/b", "data.hub.revision=main"], "data.hub.revision=main is no commit"),
    (["data=hub", "data.hub.name=a"], "data.hub.name=a must be OWNER/NAME of the hub"),
    (["data=hub", "data.hub.name=./nowhere"], "data.hub.name=./nowhere: no folder there"),
    (["data=hub", "data.hub.name=/tmp", "data.hub.revision=a"], "data.hub.name=/tmp is a folder"),
    (["data=wikitext2", "data.hub.max_bytes=0"], "data.hub.max_bytes=0 is out of range"),
    (["data.split=order"], "data.split=order cuts the one plain text"),
    (["data.paths=[a.txt]"], "data.paths and data.document belong to data=text"),
    (["resume_from=/nope.ckpt"], "resume_from=/nope.ckpt: no such file"),
    (["+model.teid=true"], "unknown key model.teid; did you mean model.tied?"),
    (["data.corpus=url"], "data.url belongs to data=url, found corpus url"),
    (["data.text_key=''"], "data.text_key is empty"),
    (["+foo=1"], "unknown key foo"),
    (["jobs_per_gpu=0"], "jobs_per_gpu=0 is out of range"),
    (["jobs_per_gpu=2"], "jobs_per_gpu=2 needs GPUs, found trainer.accelerator=cpu"),
]


@pytest.mark.parametrize(("overrides", "message"), WRONG, ids=[" ".join(o) for o, _ in WRONG])
def test_wrong_combinations_are_refused_in_one_line(overrides, message):
    with pytest.raises(RequestError) as error:
        check_config(config_of(*overrides))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_value_is_not_a_default():
    with pytest.raises(OmegaConfBaseException, match=r"tokenizer\.vocab_size"):
        config_of("vocab=bpe")


def test_hash_ignores_run_only_keys_and_nothing_else():
    base = config_of()
    for change in (
        "logger=none",
        "launch=spawn",
        "data.num_workers=2",
        "~callbacks.progress",
        "output_dir=x",
    ):
        assert config_hash(config_of(change)) == config_hash(base), change
    for change in (
        "seed=1",
        "model.tied=false",
        "data.stride=64",
        "trainer.num_threads=7",
        "~callbacks.best",
    ):
        assert config_hash(config_of(change)) != config_hash(base), change
    for key in RUN_ONLY_KEYS:
        assert key in known_keys() or key.startswith("callbacks."), key


def test_every_key_of_the_schema_has_a_value_in_the_default_config():
    config = config_of()
    for key in known_keys():
        node = config
        for part in key.split("."):
            if node is None:  # a section of another corpus
                break
            assert part in node, key
            node = node[part]
            if node is None:  # a section of another corpus
                break


def loaded_modules(*arguments):
    script = (
        "import runpy, sys; sys.argv = ['train.py', *sys.argv[1:]]\n"
        f"try: runpy.run_path({str(ROOT / 'train.py')!r}, run_name='__main__')\n"
        "except SystemExit as stop: print('status', stop.code)\n"
        "print('heavy', [m for m in ('torch', 'lightning', 'pandas', 'scipy', 'wandb') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True)
    return found.stdout


@pytest.mark.parametrize(("arguments", "status"), [(["--help"], 0), (["model.tied=maybe"], 2)])
def test_help_and_errors_come_without_heavy_imports(arguments, status, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed = loaded_modules(*arguments)
    lines = printed.splitlines()[-2:]
    assert lines[-1] == "heavy []"
    assert status in (0, int(lines[0].removeprefix("status ") if status else 0))
    assert status or "What came out: tielab report" in printed


BAD_COMMANDS = [
    (["model.tied=maybe"], "model.tied: Value 'maybe' is not a valid bool"),
    (["model.teid=true"], "unknown key model.teid; did you mean model.tied?"),
    (["widht=d64"], "unknown key widht; did you mean width?"),
    (["width=d77"], "width=d77 is not an option"),
    (["width=64"], "names, found a number"),
    (["data.corpus=wikki"], "expected one of [wiki, code, text"),
    (["vocab=bpe"], "data.tokenizer.vocab_size has no value"),
    (["model.tied=[,"], "model.tied=[,"),
    (["trainer=ddp", "trainer.devices=99", "data.batch_size=99"], "found on this machine"),
    (["-m", "model.tied=true,maybe"], "model.tied: Value 'maybe'"),
    (["-m", "model.tied=true,false", "model.num_heads=4,3"], "cannot be split over model.num_heads=3"),
    (["output_dir=/dev/null/x"], "choose another output_dir"),
    (["output_dir=/proc/x"], "choose another output_dir"),
    (["data=text", "data.paths=a.txt"], "data.paths is a list: write data.paths=[...]"),
    (["optimizer.learning_rate=null"], "optimizer.learning_rate must have a value"),
    (["-m", "output_dir=/dev/null/x", "seed=0,1"], "choose another output_dir"),
    (["data=text", "data.paths=[missing.txt]"], "missing.txt"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_COMMANDS, ids=[" ".join(a) for a, _ in BAD_COMMANDS])
def test_bad_commands(arguments, message, shell, tmp_path):
    done = shell(*arguments)
    assert done.returncode == 2, done
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("error: ")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_bad_data(shell, corpus, tmp_path):
    """Wrong data is found before a job's folder exists, in a sweep before the first job."""
    empty, latin = tmp_path / "empty.txt", tmp_path / "latin.txt"
    empty.write_text("")
    latin.write_bytes("na\xefve".encode("latin-1"))
    cases = [
        ([f"data.paths=[{empty}]"], "empty.txt"),
        ([f"data.paths=[{latin}]"], "UTF-8"),
        ([f"data.paths=[{corpus}]", "data.block_size=100000"], "data.block_size=100000"),
        ([f"data.paths=[{corpus}]", "vocab=bpe", "data.tokenizer.vocab_size=50000"], "vocab_size<="),
    ]
    for overrides, message in cases:
        done = shell("-m", "model.tied=true,false", "data=text", "vocab=byte", *overrides)
        assert done.returncode == 2, done
        assert message in done.stderr
        assert sum(line.startswith("error: ") for line in done.stderr.splitlines()) == 1
        assert not list(Path(tmp_path).glob("outputs/*/*")), overrides
