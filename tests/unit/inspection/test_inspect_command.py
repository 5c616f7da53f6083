"""``tielab inspect`` as a person and as a script call it."""

import io
import json
import subprocess
import sys

import pytest
from rich.console import Console

from inspection_files import write_safetensors
from running import ROOT
from tielab.inspection.inspect import inspect
from tielab.inspection.render import _print, page_of


def test_page_says_it_all(tielab, saved):
    done = tielab("inspect", saved("llama", False))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].endswith("1 file, 12 tensors, F32, 13,920 parameters, 54.4 KiB")
    text = {line[:23].strip(): line[23:] for line in lines[1:-1]}
    assert text["V x d"] == "96 x 32"
    assert text["LM head"] == "lm_head.weight: 96 x 32 F32, 22.1 % of the parameters, 12.0 KiB"
    assert text["in the file"] == "two matrices: their bytes differ (24.0 KiB compared)"
    assert text["in the config"] == "untied (tie_word_embeddings is false)"
    assert lines[-1] == "tying would save 3,072 parameters (22.1 %), 12.0 KiB"


def test_disagreement_is_one_line(tielab, changed):
    done = tielab("inspect", changed("qwen3", "one", tie_word_embeddings=False))
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("DISAGREE: ")]
    assert line.startswith("DISAGREE: the config says untied, the file holds one matrix")
    assert line.endswith("transformers loads it untied, with a warning: the head is made of random numbers")


def test_json_has_the_same_numbers(tielab, saved):
    content = json.loads(tielab("inspect", saved("gpt2", True), "--json").stdout)
    assert (content["vocab_size"], content["embed_dim"], content["num_parameters"]) == (96, 32, 17120)
    assert (content["tied_in_file"], content["tied_in_config"], content["tied_on_load"]) == (True, True, True)
    assert content["disagree"] is False
    assert content["untying_costs"] == {"parameters": 3072, "bytes": 12288}
    assert content["tying_saves"] is None
    assert content["lm_head"] is None
    assert content["token_embedding"]["share"] == 3072 / 17120


def test_page_in_a_narrow_terminal_loses_nothing(saved):
    page = page_of(inspect(saved("t5", True)))
    out = io.StringIO()
    _print(page, Console(file=out, width=50, force_terminal=True, color_system=None))
    shown = "".join(out.getvalue().split())
    facts = [text for fact in page.facts for text in fact]
    assert len(facts) > 10
    for text in [*facts, page.sentence, *page.notes]:
        assert all(word in shown for word in text.split()), text


def test_strangers_file_says_nothing_to_the_terminal(tielab, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "\x1b]0;x\x07", "vocab_size": 6}))
    write_safetensors(tmp_path / "model.safetensors", {"\x1b[2J": ("F32", [6, 2])})
    done = tielab("inspect", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "\\x1b[2J" in done.stdout


def test_refusal_is_one_line_and_status_2(tielab, tmp_path):
    done = tielab("inspect", tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: ")


@pytest.fixture
def run(tmp_path):
    """The folder of an untied run of a study, and its record to change."""
    folder = tmp_path / "run"
    folder.mkdir()
    record = json.loads((ROOT / "experiments/controls/runs/005/record.json").read_text())

    def write(**changes):
        (folder / "record.json").write_text(json.dumps(record | changes))
        return folder

    return write


def test_run_folder_is_told_from_its_record(tielab, run):
    out = tielab("inspect", run()).stdout
    assert "V x d            2,048 x 64\n" in out
    assert "in the config    untied (model.tied)\nin training      two matrices\n" in out
    content = json.loads(tielab("inspect", run(), "--json").stdout)
    assert content["tying_saves"]["parameters"] == content["parameters"]["head"] == 2048 * 64
    assert content["disagree"] is False


def test_run_whose_tie_broke_disagrees(tielab, run):
    done = tielab("inspect", run(tie_observed=True))
    assert "DISAGREE: asked for were two matrices, found was one matrix\n" in done.stdout


def test_run_without_a_model_is_refused(tielab, run):
    done = tielab("inspect", run(parameters={}, status="failed"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "its run was failed before it had a model" in done.stderr


def test_inspecting_imports_no_torch(tmp_path):
    write_safetensors(tmp_path / "model.safetensors", {"wte.weight": ("F32", [6, 2])})
    code = (
        "import sys; from pathlib import Path; from tielab.inspection.inspect import inspect;"
        f"inspect(Path({str(tmp_path)!r})); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
