"""Names of the two ends, as architectures have them."""

from pathlib import Path

import pytest

from tielab.errors import RequestError
from tielab.inspection.headers import Tensor
from tielab.inspection.roles import find_roles, is_parameter


def tensor(name, *shape):
    return Tensor(name, "F32", shape, Path("model.safetensors"), 0)


@pytest.mark.parametrize(
    ("embedding", "head"),
    [
        ("transformer.wte", "lm_head"),  # GPT-2, GPT-J, MPT, nanoGPT
        ("wte", None),
        ("model.embed_tokens", "lm_head"),  # Llama, Qwen, Mistral, Gemma
        ("model.language_model.embed_tokens", "lm_head"),  # Llava
        ("language_model.model.embed_tokens", "language_model.lm_head"),
        ("model.decoder.embed_tokens", "proj_out"),  # Whisper
        ("model.decoder.embed_tokens", "lm_head"),  # OPT
        ("shared", "lm_head"),  # T5
        ("model.shared", None),  # BART
        ("gpt_neox.embed_in", "embed_out"),
        ("bert.embeddings.word_embeddings", "cls.predictions.decoder"),
        ("roberta.embeddings.word_embeddings", "lm_head.decoder"),
        ("distilbert.embeddings.word_embeddings", "vocab_projector"),
        ("albert.embeddings.word_embeddings", "predictions.decoder"),
        ("transformer.word_embeddings", "lm_head"),  # BLOOM, Falcon
        ("backbone.embeddings", "lm_head"),  # Mamba
        ("tok_embeddings", "output"),  # Llama's own files
        ("biogpt.embed_tokens", "output_projection"),
        ("token_embed", "lm_head"),  # MiniGPT
        ("model.token_embed", "model.lm_head"),
    ],
)
def test_ends_are_found_by_name(embedding, head):
    others = [
        tensor("model.layers.0.mlp.up_proj.weight", 96, 32), tensor("layers.0.mlp.output.weight", 96, 32),
        tensor("encoder.layer.0.output.dense.weight", 96, 32), tensor("lm_head.dense.weight", 32, 32),
        tensor("lm_head.bias", 96), tensor("decoder.block.0.weight", 96, 32),
    ]  # fmt: skip
    ends = [tensor(f"{name}.weight", 96, 32) for name in (embedding, head) if name is not None]
    found = find_roles([*others, *ends], None)
    assert found.embedding.name == f"{embedding}.weight"
    assert (found.head.name if found.head else None) == (None if head is None else f"{head}.weight")
    assert not found.by_shape


def test_decoder_of_another_width_is_no_head():
    found = find_roles([tensor("wte.weight", 96, 32), tensor("decoder.weight", 7, 5)], None)
    assert found.head is None


def test_embedding_that_fits_the_head_is_taken():
    names = {"encoder.embed_tokens.weight": 200, "decoder.embed_tokens.weight": 96, "lm_head.weight": 96}
    found = find_roles([tensor(name, rows, 32) for name, rows in names.items()], None)
    assert found.embedding.name == "decoder.embed_tokens.weight"
    assert [copy.name for copy in found.copies] == ["encoder.embed_tokens.weight"]


def test_unknown_names_are_found_by_rows_and_it_is_said():
    matrices = [tensor("first", 96, 32), tensor("mlp", 128, 32), tensor("last", 96, 32)]
    found = find_roles(matrices, 96)
    assert (found.embedding.name, found.head.name, found.by_shape) == ("first", "last", True)


@pytest.mark.parametrize(("vocab_size", "reason"), [(None, "no vocab_size is known"), (96, "3 have 96 rows")])
def test_nothing_is_guessed_from_unclear_shapes(vocab_size, reason):
    with pytest.raises(RequestError, match=reason):
        find_roles([tensor(f"m{i}", 96, 32) for i in range(3)], vocab_size)


def test_end_without_values_is_refused():
    with pytest.raises(RequestError, match=r"lm_head\.weight is 0 x 32, without an element"):
        find_roles([tensor("wte.weight", 96, 32), tensor("lm_head.weight", 0, 32)], None)


def test_masks_and_positions_are_no_parameters():
    others = (
        "h.0.attn.masked_bias",
        "rotary_emb.inv_freq",
        "embeddings.position_ids",
        "x.g_idx",
        "final_logits_bias",
    )
    assert not any(is_parameter(tensor(name, 40)) for name in others)
    assert not is_parameter(tensor("h.0.attn.bias", 1, 1, 40, 40))
    assert is_parameter(tensor("blocks.0.attention.bias", 32))
    assert is_parameter(tensor("h.0.attn.c_attn.bias", 96))
