"""Whole runs from a model of transformers, and an older run repeated."""

import json

import pytest
import torch
import transformers
import yaml
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from tielab.data.tokenizer import CharTokenizer
from tielab.exchange.tokenizer_json import tokenizer_json
from tielab.record import read_record
from tielab.sample import load_run

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 \n"
QUICK = (
    "logger=none", "budget.tokens=1024", "budget.num_validations=1", "data.batch_size=8", "data=text",
    "trainer.num_threads=1", "data.eval_batch_size=64", "data.block_size=16",
)  # fmt: skip


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """A tied GPT-2 with its tokenizer, both saved by transformers."""
    folder = tmp_path_factory.mktemp("gpt2")
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4}
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).save_pretrained(folder)
    library = Tokenizer.from_str(tokenizer_json(CharTokenizer(LETTERS, byte_fallback=False)))
    transformers.PreTrainedTokenizerFast(tokenizer_object=library).save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_both_arms_start_from_one_model(model_folder, tielab, corpus, tmp_path):
    rate = "optimizer.learning_rate=1e-9"  # what comes out is what went in
    arms = "model.tied=true,false"
    done = tielab("import", model_folder, "-m", arms, *QUICK, f"data.paths=[{corpus}]", rate)
    assert done.returncode == 0, done
    assert "2 runs, all finished" in done.stdout
    assert "cannot be compared" not in done.stdout
    (sweep,) = (tmp_path / "outputs" / "sweeps").iterdir()
    tied, untied = read_record(sweep / "0"), read_record(sweep / "1")
    assert tied.body_hash == untied.body_hash
    assert tied.init["tie"] == "tied as it was"
    assert untied.init["tie"] == "untied: both matrices start as the shared one"
    assert tied.initial_loss == pytest.approx(untied.initial_loss, abs=1e-6)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(model_folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder)
    for job in "01":
        ours, ids_of = load_run(sweep / job)
        assert tokenizer("The city").input_ids == ids_of.encode("The city").tolist()
        x = torch.randint(64, (2, 16))
        with torch.no_grad():
            torch.testing.assert_close(ours(x), theirs(x).logits, atol=1e-5, rtol=0)
    # The folder is part of what the run is: changed, it is told or refused.
    weights = load_file(model_folder / "model.safetensors")
    weights["transformer.ln_f.bias"] += 1
    save_file(weights, model_folder / "model.safetensors", metadata={"format": "pt"})
    again = tielab("rerun", sweep / "0")
    assert again.returncode == 0, again
    assert "init.files: " in again.stdout


def test_two_matrices_are_not_tied_unasked(model_folder, tielab, corpus, tmp_path):
    untied = tmp_path / "untied"
    transformers.AutoModelForCausalLM.from_pretrained(
        model_folder, tie_word_embeddings=False
    ).save_pretrained(untied)
    tensors = load_file(untied / "model.safetensors")
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"] + 1
    save_file(tensors, untied / "model.safetensors", metadata={"format": "pt"})
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (untied / name).write_bytes((model_folder / name).read_bytes())
    assert json.loads((untied / "config.json").read_text())["tie_word_embeddings"] is False
    done = tielab("import", untied, "-m", "model.tied=true,false", *QUICK, f"data.paths=[{corpus}]")
    assert done.returncode == 2
    assert "two matrices that differ by up to 1; add init_tie_from=embedding" in done.stderr
    assert done.stderr.count("error: ") == 1
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("outputs/sweeps/*/*"))


def test_an_older_run_repeats(train, tielab, tiny, tmp_path):
    done = train(*tiny, "budget.tokens=1024", "hydra.run.dir=outputs/runs/older")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "outputs" / "runs" / "older"
    config = yaml.safe_load((folder / "run.yaml").read_text())
    record = json.loads((folder / "record.json").read_text())
    for values in (config, record["config"]):
        del values["model"]["activation"], values["init_from"], values["init_tie_from"]
    del record["init"]
    (folder / "run.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    (folder / "record.json").write_text(json.dumps(record))
    again = tielab("rerun", folder)
    assert again.returncode == 0, again.stderr
    assert again.stdout.rstrip().endswith("and every metric"), again.stdout
    assert tielab("sample", folder, "--prompt", "a", "--tokens", "3").returncode == 0
