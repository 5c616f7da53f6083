"""Runs from Python are the runs of the command line: same config, same weights, same table."""

import asyncio
import os
import re
import runpy
import signal
import subprocess
import sys
import threading
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser

import pytest
import torch
from hydra import compose, initialize_config_dir

from running import ROOT, TINY, config_of
from tielab import MiniGPT, TextData, compare
from tielab import train as train_model
from tielab.composition import CONF
from tielab.errors import RequestError
from tielab.models.accounting import weights_hash
from tielab.notebook import _config_of_run
from tielab.record import read_record

TUTORIAL = ROOT / "docs" / "tutorial.md"
NANO = {"embed_dim": 32, "num_layers": 2, "num_heads": 4, "hidden_dim": 128}
ONE_THREAD = ["trainer.num_threads=1"]


@pytest.fixture(scope="module")
def data(corpus, cache_dir):
    return TextData(
        "text", paths=[corpus], tokenizer="char", block_size=16, batch_size=8,
        overrides=["data.tokenizer.byte_fallback=false", "data.eval_batch_size=64"],
    )  # fmt: skip


@pytest.fixture(scope="module")
def output_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("outputs")


def nano(data, **arguments):
    return MiniGPT(data.vocab_size, data.block_size, **NANO, **arguments)


def run_tiny(data, output_dir, model=None, **arguments):
    return train_model(
        model or nano(data, **arguments), data, tokens=4096, num_validations=2, overrides=ONE_THREAD,
        output_dir=output_dir, progress=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def runs(data, output_dir):
    """A tied run, and after it in the same process an untied one."""
    return [run_tiny(data, output_dir, tied=tied) for tied in (True, False)]


def test_config_is_the_one_that_train_py_composes(data, corpus):
    model = nano(data, tied=False, seed=3, embed_init_std=0.01)
    values = {"budget.tokens": 4096, "budget.num_validations": 2}
    ours = _config_of_run(model, data, ONE_THREAD, values, True)
    asked = ("model.tied=false", "seed=3", "model.embed_init_std=0.01")
    assert ours == config_of(*TINY, f"data.paths=[{corpus}]", *asked)


def test_defaults_are_those_of_conf(cache_dir):
    assert _config_of_run(MiniGPT(4096, 128), TextData(), [], {}, True) == config_of("logger=none")


def test_weights_are_those_of_train_py_whatever_was_trained_before(runs, tiny, train, tmp_path):
    done = train(*tiny, "model.tied=false", "hydra.run.dir=cli")
    assert done.returncode == 0, done.stderr
    theirs, ours = read_record(tmp_path / "cli"), runs[1].record
    assert ours.weights_hash == theirs.weights_hash
    assert ours.validation == theirs.validation
    assert ours.config_hash == theirs.config_hash


def test_model_has_the_trained_weights(runs):
    for run in runs:
        assert weights_hash(run.model) == run.record.weights_hash
        assert run.bits_per_byte == run.record.validation["bits_per_byte"]
    assert runs[0].model.lm_head.weight is runs[0].model.token_embed.weight
    assert runs[0].metrics["step"].max() == 32


def test_split_model_is_split_afterwards(data, output_dir):
    run = run_tiny(data, output_dir, untie_at=0.5)
    assert weights_hash(run.model) == run.record.weights_hash
    assert not torch.equal(run.model.lm_head.weight, run.model.token_embed.weight)


def test_comparison_is_the_one_of_tielab_report(runs, tielab):
    comparison = compare(runs)
    done = tielab("report", *(run.folder for run in runs))
    assert f"{comparison}\n" == done.stdout
    assert comparison.to_pandas()["arm"].tolist() == ["tied", "untied"]
    assert f"{compare([runs[0].folder.parent])}".splitlines()[1] == f"{comparison}".splitlines()[1]


class Tags(HTMLParser):
    """Every tag that is opened is closed."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_comparison_in_a_notebook_is_html(runs):
    text = compare(runs)._repr_html_()
    tags = Tags()
    tags.feed(text)
    assert not tags.open
    assert {"table", "ul", "td"} <= tags.seen
    assert "script" not in tags.seen
    assert f"{runs[0].bits_per_byte:.4f}" in text


def test_run_is_repeated_by_tielab_rerun(runs, tielab):
    done = tielab("rerun", runs[0].folder, f"output_dir={runs[0].folder.parents[1] / 'again'}")
    assert done.returncode == 0, done.stderr
    assert "reproduced bit for bit" in done.stdout


def test_trains_beside_an_event_loop_and_off_the_main_thread(data, output_dir, runs):
    async def cell():
        return await asyncio.to_thread(run_tiny, data, output_dir, tied=True)

    assert asyncio.run(cell()).record.weights_hash == runs[0].record.weights_hash


def test_interrupted_training_leaves_a_checkpoint(data, tmp_path, capsys):
    """As when a notebook's cell is stopped."""

    def stop():
        while not any(file.read_text().count("\n") > 2 for file in tmp_path.glob("runs/*/metrics.csv")):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        train_model(nano(data), data, tokens=10**8, output_dir=tmp_path, overrides=ONE_THREAD, progress=False)
    (folder,) = tmp_path.glob("runs/*")
    assert read_record(folder).status == "interrupted"
    assert (folder / "checkpoints" / "last.ckpt").is_file()
    assert f"to go on: tielab resume {folder}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.tied=false"], "override model.tied=false is not taken here"),
        (["seed=4"], "override seed=4 is not taken here"),
        (["matching=params"], "override matching=params is not taken here"),
        (["callbacks=none"], "callbacks has no last"),
        (["optimizer.learning_rat=1"], "did you mean optimizer.learning_rate"),
        (["trainer.precision=8"], "trainer.precision=8 is not one of"),
    ],
)
def test_wrong_overrides_are_refused_in_one_line(data, tmp_path, overrides, message):
    with pytest.raises(RequestError, match=re.escape(message)) as caught:
        train_model(nano(data), data, overrides=overrides, output_dir=tmp_path, progress=False)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("run.yaml"))


def test_model_of_another_vocabulary_is_refused(data, tmp_path):
    with pytest.raises(RequestError, match="the model has vocab_size=65, the data vocab_size=64; build it"):
        train_model(MiniGPT(65, 16, **NANO), data, output_dir=tmp_path)


def test_model_of_another_block_size_is_refused(data, tmp_path):
    with pytest.raises(RequestError, match="the model has block_size=32, the data block_size=16"):
        train_model(MiniGPT(64, 32, **NANO), data, output_dir=tmp_path)


def test_model_is_not_trained_twice(data, runs, tmp_path):
    with pytest.raises(RequestError, match="weights are not those of seed=0: it was trained"):
        run_tiny(data, tmp_path, runs[0].model)
    assert not list(tmp_path.iterdir())


def test_model_of_ones_own_class_is_refused(data, tmp_path):
    class Mine(MiniGPT):
        pass

    with pytest.raises(RequestError, match="is outside the allowed packages"):
        run_tiny(data, tmp_path, Mine(64, 16, **NANO))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda data: TextData("text", paths="a.txt"), "paths is a list: paths=['a.txt']"),
        (lambda data: TextData(overrides="data.block_size=8"), "overrides is a list: overrides=['data.blo"),
        (lambda data: compare("outputs"), "runs is a list: runs=['outputs']"),
        (
            lambda data: train_model(nano(data), "wiki"),
            "takes a MiniGPT and a TextData, found",
        ),
        (
            lambda data: train_model(nano(data, tied="false"), data),
            "tied='false' would be read as False",
        ),
        (
            lambda data: train_model(nano(data), data, output_dir="/dev/null/x"),
            "cannot write /dev/",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(data, tmp_path, monkeypatch, ask, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError, match=re.escape(message)) as caught:
        ask(data)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_threads_and_a_hydra_of_ones_own_do_not_stand_in_the_way(tmp_path):
    (tmp_path / "mine.yaml").write_text("a: 1\n")
    with initialize_config_dir(str(tmp_path), version_base="1.3"), ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda size: TextData(block_size=size), range(8, 24)))
        assert compose("mine") == {"a": 1}
    assert [data.block_size for data in made] == list(range(8, 24))


def test_unknown_corpus_is_refused():
    with pytest.raises(RequestError, match="data=wikki is not an option; did you mean wiki"):
        TextData("wikki")


def test_importing_tielab_costs_no_torch():
    code = "import sys, tielab; tielab.TextData; tielab.train; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_unknown_name_is_an_attribute_error():
    import tielab

    with pytest.raises(AttributeError, match="has no attribute 'fit_model'"):
        _ = tielab.fit_model
    assert set(tielab.__all__) <= set(dir(tielab))


def test_installed_package_has_the_config():
    """Every config file but the studies is package data."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    package = CONF.parent
    shipped = {path for pattern in settings["package-data"]["tielab"] for path in package.glob(pattern)}
    needed = {path for path in CONF.rglob("*.yaml") if "experiments" not in path.parts}
    assert len(needed) > 40
    assert needed <= shipped


def test_example_is_short_and_runs(corpus, cache_dir, tmp_path, monkeypatch, capsys):
    """The script of the tutorial, which has no guard, on a text and a budget that take seconds."""
    page = TUTORIAL.read_text(encoding="utf-8")
    (text,) = re.findall(r"^``` \{\.python\}\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    assert len([line for line in text.splitlines() if line.strip()]) < 20
    for there, here in (
        ("50_000", "2_048"),
        ("(0, 1, 2)", "(0, 1)"),
        ('"wiki"', f'"text", paths=["{corpus}"]'),
    ):
        assert there in text
        text = text.replace(there, here)
    script = tmp_path / "example.py"
    script.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    assert "4 runs, all finished\ntied \N{MINUS SIGN} untied = " in capsys.readouterr().out
    assert len(list(tmp_path.glob("outputs/runs/*/record.json"))) == 4
