"""A model saved by transformers starts a run as the same function; its tie is kept or changed as asked."""

import json
import shutil

import pytest
import torch
import transformers
from exchange_runs import TOKENIZER, assert_same_logits, make_run
from safetensors.torch import load_file, save_file

from running import TINY, config_of
from tielab.checks import check_config
from tielab.errors import RequestError
from tielab.exchange.export import export
from tielab.exchange.load import start_from
from tielab.fit import build_model
from tielab.models.accounting import body_hash
from tielab.models.tying import tie_problem

V = TOKENIZER.vocab_size


def gpt2(**changes):
    torch.manual_seed(3)
    config = transformers.GPT2Config(
        **{
            "vocab_size": V, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 128,
            "bos_token_id": None, "eos_token_id": None,
        } | changes
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two models, and their folders as transformers saves them."""
    place = tmp_path_factory.mktemp("models")
    saved = {"tied": gpt2(), "untied": gpt2(tie_word_embeddings=False, activation_function="gelu")}
    for name, model in saved.items():
        model.save_pretrained(place / name)
    return {name: (model, place / name) for name, model in saved.items()}


def started(folder, *overrides, activation="gelu_tanh"):
    """A model that started from a folder, and what became of it."""
    config = config_of(
        *TINY, "data.paths=[some.txt]", "data.block_size=32", f"model.activation={activation}",
        f"init_from={folder}", *overrides,
    )  # fmt: skip
    check_config(config)
    model = build_model(config["model"], TOKENIZER)
    init = start_from(config, model, TOKENIZER)
    assert tie_problem(model, config["model"]["tied"]) is None
    return model, init


def test_a_tied_model_is_kept_or_copied(models):
    theirs, folder = models["tied"]
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    tied, init = started(folder)
    untied, other = started(folder, "model.tied=false")
    for ours in (tied, untied):
        assert_same_logits(ours, theirs, length=32)
    assert torch.equal(untied.lm_head.weight, untied.token_embed.weight)
    assert body_hash(tied) == body_hash(untied)
    assert (init["tied"], init["tie"]) == (True, "tied as it was")
    assert other["tie"] == "untied: both matrices start as the shared one"
    assert init["files"] == other["files"]
    assert sorted(init["files"]) == ["config.json", "model.safetensors"]
    assert all(len(digest) == 64 for digest in init["files"].values())


def test_an_untied_model_is_kept_and_tied_only_as_named(models):
    theirs, folder = models["untied"]
    ours, init = started(folder, "model.tied=false", activation="gelu")
    assert_same_logits(ours, theirs, length=32)
    assert init["tie"] == "untied as it was"
    with pytest.raises(RequestError, match=r"differ by up to .*add init_tie_from=embedding"):
        started(folder, activation="gelu")
    for end, weight in (("embedding", theirs.transformer.wte.weight), ("head", theirs.lm_head.weight)):
        tied, init = started(folder, f"init_tie_from={end}", activation="gelu")
        assert torch.equal(tied.token_embed.weight, weight)
        assert init["tie"] == f"tied: the {end}'s matrix, the other one is dropped"


def test_equal_matrices_are_tied(models, tmp_path):
    theirs, folder = models["tied"]
    model, _ = started(folder, "model.tied=false")
    untied = gpt2(tie_word_embeddings=False)
    untied.load_state_dict({**theirs.state_dict(), "lm_head.weight": model.lm_head.weight})
    untied.save_pretrained(tmp_path / "equal")
    ours, init = started(tmp_path / "equal")
    assert_same_logits(ours, theirs, length=32)
    assert init["tie"] == "tied: both matrices were equal"


def test_a_model_in_parts(models, tmp_path):
    theirs, _ = models["untied"]
    theirs.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    ours, init = started(tmp_path, "model.tied=false", activation="gelu")
    assert_same_logits(ours, theirs, length=32)
    assert len(init["files"]) == 1 + len(list(tmp_path.glob("*.safetensors")))
    next(tmp_path.glob("*00002*.safetensors")).unlink()
    with pytest.raises(RequestError, match="which is not there; fetch it"):
        started(tmp_path, "model.tied=false", activation="gelu")


def test_files_as_the_published_ones_are(models, tmp_path):
    """In torch's format, names without their first word, masks among them, half precision."""
    theirs, folder = models["tied"]
    state = {name.removeprefix("transformer."): t.bfloat16() for name, t in theirs.state_dict().items()}
    state |= {"h.0.attn.bias": torch.ones(1, 1, 32, 32), "h.0.attn.masked_bias": torch.tensor(-1e4)}
    torch.save(state, tmp_path / "pytorch_model.bin")
    shutil.copy(folder / "config.json", tmp_path)
    ours, _ = started(tmp_path)
    assert_same_logits(ours, gpt2().bfloat16().float(), length=32)


def test_fewer_positions_are_the_first_ones(models):
    theirs, folder = models["tied"]
    ours, init = started(folder, "data.block_size=16")
    assert_same_logits(ours, theirs, length=16)
    assert init["num_positions"] == 32


def test_a_bias_and_a_square_map_change_nothing_at_first(models):
    theirs, folder = models["tied"]
    ours, _ = started(folder, "model.output_bias=true", "model.head_map=linear")
    assert_same_logits(ours, theirs, length=32)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.embed_dim=64"], r"model\.embed_dim=64, but the model of init_from=.* has 32"),
        (["model.activation=gelu"], r"model\.activation=gelu, but .* has gelu_tanh"),
        (["data.block_size=64"], r"data\.block_size=64, but .* has 32"),
        (["data.tokenizer.vocab_size=64"], rf"model\.vocab_size=64, but .* has {V}"),
        (["model.embed_scale=2"], r"model\.embed_scale=2\.0 does not go with init_from"),
        (["model.init_std=0.1"], r"model\.init_std=0\.1 does not go with init_from"),
        (["tying=rotated"], r"model\.head_map=rotation does not go with init_from"),
        (["tying=factorised", "model.embed_rank=8"], r"model\.embed_rank=8 does not go with init_from"),
        (["init_tie_from=head"], "chooses between two matrices, and .* has one"),
    ],
)
def test_what_contradicts_the_model_is_refused(overrides, message, models):
    with pytest.raises(RequestError, match=message):
        started(models["tied"][1], *overrides)


def test_a_choice_without_a_model_is_refused():
    with pytest.raises(RequestError, match="init_tie_from=head needs init_from=FOLDER"):
        check_config(config_of("init_tie_from=head"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "llama"}, "a model of type llama; only GPT-2-shaped"),
        ({"scale_attn_by_inverse_layer_idx": True}, "has scale_attn_by_inverse_layer_idx=true"),
        ({"reorder_and_upcast_attn": True}, "has reorder_and_upcast_attn=true"),
        ({"layer_norm_epsilon": 1e-6}, "has layer_norm_epsilon=1e-06"),
        ({"activation_function": "relu"}, "has activation_function=relu; MiniGPT has gelu"),
        ({"n_head": "four"}, 'has n_head="four"'),
        ({"tie_word_embeddings": "false"}, 'has tie_word_embeddings="false"; it must be true or false'),
        ({"tie_word_embeddings": False}, r"says tie_word_embeddings=false and has no lm_head\.weight"),
    ],
)
def test_what_a_minigpt_does_not_compute_is_refused(changes, message, models, tmp_path):
    shutil.copytree(models["tied"][1], tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(RequestError, match=message):
        started(tmp_path / "model")


def damaged(folder, copy, change):
    shutil.copytree(folder, copy)
    tensors = load_file(copy / "model.safetensors")
    change(tensors)
    save_file(tensors, copy / "model.safetensors")
    return copy


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("transformer.h.1.ln_2.bias"), r"has no transformer\.h\.1\.ln_2\.bias"),
        (lambda t: t.update(extra=torch.ones(1)), "1 tensors that no GPT-2 has, such as extra"),
        (
            lambda t: t.update({"transformer.wte.weight": torch.ones(V - 1, 32)}),
            rf"wte\.weight is \({V - 1}, 32\), its config says \({V}, 32\)",
        ),
        (lambda t: t.update({"lm_head.weight": torch.ones(V, 32)}), "lm_head.weight differs from"),
        (
            lambda t: t.update({"transformer.ln_f.bias": torch.ones(32, dtype=torch.int8)}),
            "of floating point",
        ),
    ],
)
def test_wrong_tensors_are_refused(change, message, models, tmp_path):
    with pytest.raises(RequestError, match=message):
        started(damaged(models["tied"][1], tmp_path / "model", change))


def test_unreadable_files_are_refused(models, tmp_path):
    shutil.copytree(models["tied"][1], tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(RequestError, match="cannot be read as safetensors"):
        started(tmp_path / "model")
    path.rename(path.with_name("pytorch_model.bin"))
    with pytest.raises(RequestError, match="truncated or not weights alone"):
        started(tmp_path / "model")
    path.with_name("pytorch_model.bin").unlink()
    with pytest.raises(RequestError, match="no weights there"):
        started(tmp_path / "model")
    for folder in (tmp_path, tmp_path / "model" / "config.json"):
        with pytest.raises(RequestError, match=r"no config\.json there; give the folder of a model"):
            started(folder)


def test_another_tokenizer_of_the_same_size_is_refused(models, tmp_path):
    from tielab.data.tokenizer import CharTokenizer
    from tielab.exchange.tokenizer_json import tokenizer_json

    shutil.copytree(models["tied"][1], tmp_path / "model")
    turned = CharTokenizer(TOKENIZER.characters[::-1], byte_fallback=False)
    (tmp_path / "model" / "tokenizer.json").write_text(tokenizer_json(turned))
    with pytest.raises(RequestError, match=r"id 0 is b'a' here and .* in the tokenizer of init_from"):
        started(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_text(tokenizer_json(TOKENIZER))
    started(tmp_path / "model")


@pytest.mark.parametrize("tied", [True, False])
def test_out_and_in_again(tied, tmp_path):
    model = make_run(tmp_path / "run", f"model.tied={tied}")
    export(tmp_path / "run")
    again, _ = started(
        tmp_path / "run" / "export", "data.block_size=16", f"model.tied={tied}", activation="gelu"
    )
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
