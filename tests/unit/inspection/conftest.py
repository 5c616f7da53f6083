"""Tiny models that transformers makes, tied and untied, and files that disagree with their configs."""

import json
import logging
import os

import pytest

V, D = 96, 32


@pytest.fixture(scope="session")
def transformers():
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    import transformers

    logging.getLogger("transformers").setLevel(logging.ERROR)
    transformers.utils.logging.disable_progress_bar()
    return transformers


def make(transformers, family, tied):
    """A model of V x D: 96 x 32."""
    sizes = {
        "vocab_size": V, "hidden_size": D, "intermediate_size": 48, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 40,
        "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": tied,
    }  # fmt: skip
    if family == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=V, n_embd=D, n_layer=1, n_head=2, n_positions=40, bos_token_id=1, eos_token_id=2,
            tie_word_embeddings=tied,
        )  # fmt: skip
        return transformers.GPT2LMHeadModel(config)
    if family == "t5":
        config = transformers.T5Config(
            vocab_size=V, d_model=D, d_kv=16, d_ff=48, num_layers=1, num_heads=2, tie_word_embeddings=tied
        )
        model = transformers.T5ForConditionalGeneration(config)
        if not tied:  # as in T5 v1.1; the class itself always ties
            model.lm_head.weight = type(model.lm_head.weight)(model.lm_head.weight.detach() + 1)
        return model
    names = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}
    config = getattr(transformers, f"{names[family]}Config")(**sizes)
    return getattr(transformers, f"{names[family]}ForCausalLM")(config)


FAMILIES = ("gpt2", "llama", "qwen2", "qwen3", "t5")
EMBEDDINGS = {"gpt2": "transformer.wte.weight", "t5": "shared.weight"}


@pytest.fixture(scope="session")
def saved(transformers, tmp_path_factory):
    """``saved(family, tied)``: the folder of a model as ``save_pretrained`` writes it."""
    root = tmp_path_factory.mktemp("models")

    def folder(family, tied, **how):
        path = root / "-".join([family, str(tied), *map(str, how.values())])
        if not path.exists():
            make(transformers, family, tied).save_pretrained(path, **how)
        return path

    return folder


@pytest.fixture
def changed(saved, tmp_path):
    """``changed(family, kind, **config)``: a tied model whose file holds another thing of the two ends."""
    from safetensors.torch import load_file, save_file

    def folder(family, kind, **config):
        source, embedding = saved(family, True), EMBEDDINGS.get(family, "model.embed_tokens.weight")
        tensors = load_file(source / "model.safetensors")
        if kind == "equal":
            tensors["lm_head.weight"] = tensors[embedding].clone()
        if kind in ("different", "head_only"):
            tensors["lm_head.weight"] = tensors[embedding] + 1
        if kind == "head_only":
            del tensors[embedding]
        content = json.loads((source / "config.json").read_text()) | config
        content.pop("scale_decoder_outputs", None)  # as published configs are, it follows the tie
        content = {key: value for key, value in content.items() if value is not None}
        (tmp_path / "config.json").write_text(json.dumps(content))
        save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
        return tmp_path

    return folder
