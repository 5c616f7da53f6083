"""An exported run is the same function in transformers, tied or not, and says what it is."""

import ast
import json
import re

import huggingface_hub
import pytest
import torch
import transformers
import yaml
from exchange_runs import TOKENIZER, assert_same_logits, make_run
from safetensors.torch import load_file

from running import ROOT
from tielab.errors import RequestError
from tielab.exchange import export as exporting
from tielab.exchange.export import export
from tielab.models.accounting import parameter_ledger

V, D = TOKENIZER.vocab_size, 32
SCHEMES = {
    "tied_linear": "model.head_map=linear",
    "tied_low_rank": "model.head_map=linear",
    "permuted": "model.head_map=permutation",
    "rotated": "model.head_map=rotation",
    "factorised": "model.embed_rank=16",
    "factorised_untied": "model.embed_rank=16",
    "tied_scaled": "model.embed_scale=5.65685",
}


def scheme_overrides(name):
    ranks = {"tied_low_rank": "model.head_map_rank=16"}
    ranks |= dict.fromkeys(("factorised", "factorised_untied"), "model.embed_rank=16")
    return [f"tying={name}", *([ranks[name]] if name in ranks else [])]


def loaded(folder):
    """The model by transformers, which must have found every tensor and no other one."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    assert isinstance(model, transformers.GPT2LMHeadModel)
    return model


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
@pytest.mark.parametrize("tied", [True, False])
def test_logits_tie_and_count_are_the_same(tied, activation, tmp_path):
    model = make_run(tmp_path / "run", f"model.tied={tied}", f"model.activation={activation}")
    written = export(tmp_path / "run")
    theirs = loaded(tmp_path / "run" / "export")
    assert_same_logits(model, theirs)
    assert_same_logits(model, theirs, length=5)
    assert (theirs.lm_head.weight is theirs.transformer.wte.weight) is tied
    assert theirs.config.tie_word_embeddings is tied is written.tie_word_embeddings
    tensors = load_file(tmp_path / "run" / "export" / "model.safetensors")
    assert ("lm_head.weight" in tensors) is not tied
    total = parameter_ledger(model)["total"]
    assert sum(tensor.numel() for tensor in tensors.values()) == total == written.num_parameters
    assert sum(parameter.numel() for parameter in theirs.parameters()) == total


def test_the_two_activations_are_two_functions(tmp_path):
    one = make_run(tmp_path / "a", "model.activation=gelu")
    make_run(tmp_path / "b", "model.activation=gelu_tanh")
    export(tmp_path / "b")
    with pytest.raises(AssertionError, match="not close"):
        assert_same_logits(one, loaded(tmp_path / "b" / "export"))


def test_a_tied_file_is_smaller_by_the_matrix(tmp_path):
    sizes = {}
    for tied in (True, False):
        make_run(tmp_path / str(tied), f"model.tied={tied}")
        sizes[tied] = export(tmp_path / str(tied)).num_bytes
    assert 4 * V * D <= sizes[False] - sizes[True] < 4 * V * D + 128  # its name in the header


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_is_refused_by_its_key_or_written_untied(name, tmp_path):
    model = make_run(tmp_path / "run", *scheme_overrides(name))
    with pytest.raises(RequestError, match=re.escape(f"{SCHEMES[name]} has no place in a GPT-2; --untied")):
        export(tmp_path / "run")
    assert not (tmp_path / "run" / "export").exists()
    assert not export(tmp_path / "run", untied=True).tie_word_embeddings
    theirs = loaded(tmp_path / "run" / "export")
    assert_same_logits(model, theirs)
    card = (tmp_path / "run" / "export" / "README.md").read_text()
    assert ("more parameters than were trained" in card) is (name != "factorised_untied")


def test_a_plainly_tied_run_can_be_written_untied(tmp_path):
    model = make_run(tmp_path / "run")
    assert export(tmp_path / "run", untied=True).num_parameters == parameter_ledger(model)["total"] + V * D
    theirs = loaded(tmp_path / "run" / "export")
    assert_same_logits(model, theirs)
    assert theirs.lm_head.weight is not theirs.transformer.wte.weight


def test_the_scale_of_an_untied_model_is_in_its_input_matrix(tmp_path):
    model = make_run(tmp_path / "run", "model.tied=false", "model.embed_scale=50")
    export(tmp_path / "run")
    assert_same_logits(model, loaded(tmp_path / "run" / "export"))


def test_a_run_that_was_split_is_untied(tmp_path):
    model = make_run(tmp_path / "run", "tying=untie_late", split=True)
    assert not export(tmp_path / "run").tie_word_embeddings
    assert_same_logits(model, loaded(tmp_path / "run" / "export"))


@pytest.mark.parametrize("untied", [True, False])
def test_an_output_bias_is_refused(untied, tmp_path):
    make_run(tmp_path / "run", "model.output_bias=true")
    with pytest.raises(RequestError, match=r"model\.output_bias=true: the head of a GPT-2 has no bias"):
        export(tmp_path / "run", untied=untied)


def test_a_diverged_run_is_refused(tmp_path):
    make_run(tmp_path / "run", change=lambda model: model.final_norm.bias.fill_(float("nan")))
    with pytest.raises(RequestError, match="values that are no numbers"):
        export(tmp_path / "run")


def test_nothing_is_overwritten_and_nothing_is_left_half(tmp_path, monkeypatch):
    make_run(tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("x")
    with pytest.raises(RequestError, match="mine is not empty; name another folder"):
        export(tmp_path / "run", tmp_path / "mine")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting, "tokenizer_config", lambda size: {"size": size})
    monkeypatch.setattr(exporting, "save_file", full)
    with pytest.raises(RequestError, match=r"cannot write .*No space left"):
        export(tmp_path / "run", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "run"]
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["precious.txt"]


def test_the_card_has_the_numbers_of_these_weights_and_its_code_runs(tmp_path, capsys):
    make_run(tmp_path / "run", status="interrupted")
    export(tmp_path / "run", checkpoint="last")
    folder = tmp_path / "run" / "export"
    card = huggingface_hub.ModelCard.load(folder / "README.md")
    assert (card.data.library_name, card.data.pipeline_tag) == ("transformers", "text-generation")
    assert card.data.license is None
    text = re.sub(r"\s+", " ", card.text)
    total = parameter_ledger(make_run(tmp_path / "twin"))["total"]
    for line in (
        "| bits per byte | 3.1250 |", "| perplexity (of this tokenizer) | 8.72 |",
        "| training tokens seen | 4,096 |", f"| parameters in the file | {total:,} |",
        f"| of them embedding and head | {V * D:,} ({V * D / total:.1%}) |",
        "| tied, as configured / as observed | True / True |", "corpus | text, hash `abc`",
        "**The run did not finish:** its record says interrupted.", "of its last checkpoint",
    ):  # fmt: skip
        assert line in text, line
    code = re.search(r"```python\n(.+?)```", card.text, flags=re.DOTALL)[1]
    exec(code.replace("FOLDER", str(folder)), {})
    assert capsys.readouterr().out.startswith("The city")


def test_the_card_repeats_the_run(tmp_path):
    from tielab.trust import read_run_yaml

    make_run(tmp_path / "run", "model.tied=false")
    export(tmp_path / "run")
    text = re.search(r"```yaml\n(.+?)```", (tmp_path / "run/export/README.md").read_text(), re.DOTALL)[1]
    (tmp_path / "run.yaml").write_text(text)
    repeated, original = read_run_yaml(tmp_path / "run.yaml"), read_run_yaml(tmp_path / "run" / "run.yaml")
    assert repeated["model"] == original["model"]
    assert repeated["data"]["cache_dir"] == ".cache/tielab"


def test_a_checkpoint_between_validations_has_no_score(tmp_path):
    make_run(tmp_path / "run", seen=3000)
    export(tmp_path / "run")
    card = (tmp_path / "run" / "export" / "README.md").read_text()
    assert "| validation | none at the step of this checkpoint |" in card
    assert "bits per byte" not in card


def test_the_command(tmp_path, tielab):
    make_run(tmp_path / "run")
    done = tielab("export", "run", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["folder"] == "run/export"
    again = tielab("export", "run")
    assert (again.returncode, again.stderr) == (2, "error: run/export is not empty; name another folder\n")
    assert tielab("export", "run", "other").stdout.startswith("other: ")
    missing = tielab("export", "nothing")
    assert missing.returncode == 2
    assert "nothing: no record.json there" in missing.stderr


def test_nothing_here_needs_transformers():
    for path in (ROOT / "src/tielab/exchange").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.partition(".")[0] in ("transformers", "huggingface_hub") for name in names)


def test_an_older_run_is_exported_as_it_was(tmp_path):
    """Its run.yaml and its checkpoint know nothing of later keys."""
    model = make_run(tmp_path / "run")
    config = yaml.safe_load((tmp_path / "run" / "run.yaml").read_text())
    del config["model"]["activation"], config["init_from"], config["init_tie_from"]
    (tmp_path / "run" / "run.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    kept = torch.load(tmp_path / "run" / "checkpoints" / "best.ckpt")["tielab"]["identity"]
    assert not {"model.activation", "init_from", "init_tie_from"} & kept.keys()
    export(tmp_path / "run")
    assert_same_logits(model, loaded(tmp_path / "run" / "export"))
