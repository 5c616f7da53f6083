"""Tied or not, in the file and in the config, of models that transformers makes."""

import json

import pytest

from inspection_files import write_safetensors
from tielab.errors import RequestError
from tielab.inspection.inspect import CHUNK_BYTES, inspect
from tielab.inspection.loading import InFile

FAMILIES = ("gpt2", "llama", "qwen2", "qwen3", "t5")


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_saved_model_is_told(saved, transformers, family, tied):
    folder = saved(family, tied)
    found = inspect(folder)
    kind = transformers.AutoModelForSeq2SeqLM if family == "t5" else transformers.AutoModelForCausalLM
    model = kind.from_pretrained(folder)
    assert found.matrix.shape == (96, 32)
    assert found.in_file == (InFile.ONE if tied else InFile.DIFFERENT)
    assert found.tied is tied
    assert (model.get_output_embeddings().weight is model.get_input_embeddings().weight) is tied
    assert found.num_parameters == sum(p.numel() for p in model.parameters())
    assert found.num_bytes == 4 * found.num_parameters
    assert found.dtypes == ["F32"]
    if family != "t5":
        assert found.config.tied is tied
        assert not found.disagrees


def test_t5_class_ties_whatever_its_config_is_given(saved):
    """T5 v1.1's head is in the file all the same; it is the config written by T5Config that is wrong."""
    found = inspect(saved("t5", False))
    assert found.config.tied is True
    assert found.disagrees
    assert found.tied is False


def test_shards_with_an_index_are_one_model(saved):
    whole, sharded = inspect(saved("llama", False)), inspect(saved("llama", False, max_shard_size="20KB"))
    assert len(sharded.weights.files) > 1
    assert sharded.num_parameters == whole.num_parameters
    assert sharded.in_file == InFile.DIFFERENT
    assert sharded.num_compared_bytes == 2 * 96 * 32 * 4


def test_shards_without_an_index_are_one_model(saved, tmp_path):
    for file in saved("llama", False, max_shard_size="20KB").glob("*.safetensors"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    found = inspect(tmp_path)
    assert found.in_file == InFile.DIFFERENT
    assert found.config is None


def test_one_shard_alone_is_refused(saved):
    file = sorted(saved("llama", False, max_shard_size="20KB").glob("*.safetensors"))[0]
    with pytest.raises(RequestError, match=r"1 shard of the \d of model: the others may hold the head"):
        inspect(file)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int8", "float8_e4m3fn"])
def test_numbers_of_any_type_are_counted(tmp_path, dtype):
    import torch
    from safetensors.torch import save_file

    ends = {
        name: torch.zeros(96, 32) + i
        for i, name in enumerate(("model.embed_tokens.weight", "lm_head.weight"))
    }
    tensors = {name: tensor.to(getattr(torch, dtype)) for name, tensor in ends.items()}
    save_file({**tensors, "model.norm.weight": torch.ones(32)}, tmp_path / "model.safetensors")
    found = inspect(tmp_path / "model.safetensors")
    size = tensors["lm_head.weight"].element_size()
    assert found.num_parameters == 2 * 96 * 32 + 32
    assert found.num_bytes == 2 * 96 * 32 * size + 4 * 32
    assert found.in_file == InFile.DIFFERENT


def test_huge_model_costs_its_header_alone(tmp_path):
    """A file of 100 GB whose values are a hole."""
    rows, width = 128_256, 16_384
    file = tmp_path / "model.safetensors"
    shapes = {
        "model.embed_tokens.weight": [rows, width],
        "model.layers.0.mlp.up_proj.weight": [width, 3_000_000],
    }
    write_safetensors(file, {name: ("BF16", shape) for name, shape in shapes.items()})
    found = inspect(file)
    assert found.num_bytes > 100e9
    assert file.stat().st_blocks * 512 < 1e6
    assert found.num_parameters == rows * width + 3_000_000 * width
    assert found.num_compared_bytes == 0


def test_matrices_are_compared_in_pieces_up_to_the_first_difference(tmp_path):
    file = tmp_path / "model.safetensors"
    shape = [CHUNK_BYTES // 32, 4 * 32]  # four pieces of one byte each
    ends = {"model.embed_tokens.weight": ("I8", shape), "lm_head.weight": ("I8", shape)}
    begin = write_safetensors(file, ends)
    assert inspect(file).in_file == InFile.EQUAL
    assert inspect(file).num_compared_bytes == 2 * 4 * CHUNK_BYTES
    with file.open("r+b") as handle:
        handle.seek(begin + CHUNK_BYTES + 5)
        handle.write(b"\1")
    assert inspect(file).in_file == InFile.DIFFERENT
    assert inspect(file).num_compared_bytes == 2 * 2 * CHUNK_BYTES


def test_last_byte_counts(tmp_path):
    file = tmp_path / "model.safetensors"
    write_safetensors(file, {"model.embed_tokens.weight": ("F32", [9, 5]), "lm_head.weight": ("F32", [9, 5])})
    with file.open("r+b") as handle:
        handle.seek(-1, 2)
        handle.write(b"\1")
    assert inspect(file).in_file == InFile.DIFFERENT


def test_masks_are_no_parameters(tmp_path):
    """GPT-2 as it was first published holds a causal mask in each layer."""
    ends = {"wte.weight": ("F32", [96, 32]), "h.0.attn.bias": ("F32", [1, 1, 40, 40])}
    write_safetensors(tmp_path / "model.safetensors", {**ends, "h.0.attn.c_attn.bias": ("F32", [96])})
    found = inspect(tmp_path / "model.safetensors")
    assert found.num_parameters == 96 * 32 + 96
    assert found.notes == ("left out: 1 masks and other buffers of 1,600 elements",)


def test_copies_in_an_encoder_and_a_decoder_count_once(tmp_path):
    names = ("shared", "encoder.embed_tokens", "decoder.embed_tokens", "lm_head")
    write_safetensors(tmp_path / "model.safetensors", {f"{name}.weight": ("F32", [96, 32]) for name in names})
    found = inspect(tmp_path / "model.safetensors")
    assert found.roles.embedding.name == "shared.weight"
    assert found.num_parameters == 96 * 32


def test_padded_vocabulary_is_said(changed):
    found = inspect(changed("llama", "one", vocab_size=90))
    assert found.matrix.shape[0] == 96
    assert found.notes == (
        "model.embed_tokens.weight has 96 rows, 6 more: padding; the config says vocab_size 90",
    )


def test_quantised_model_is_said(changed):
    found = inspect(changed("llama", "one", quantization_config={"quant_method": "gptq", "bits": 4}))
    assert any(note.startswith("quantised (gptq)") for note in found.notes)


def test_packed_head_is_no_missing_head(tmp_path):
    ends = {"model.embed_tokens.weight": ("F16", [96, 32]), "lm_head.qweight": ("I32", [4, 96])}
    write_safetensors(tmp_path / "model.safetensors", ends)
    assert inspect(tmp_path / "model.safetensors").in_file == InFile.PACKED


def test_model_without_a_head_is_not_called_tied(changed):
    found = inspect(changed("gpt2", "one", architectures=["GPT2Model"], tie_word_embeddings=False))
    assert not found.has_head
    assert not found.disagrees
    assert found.on_load.words == "without a head: GPT2Model has none"


def test_scale_before_a_tied_head_is_said(saved, changed):
    note = "before the tied head the hidden states are multiplied by d ** -0.5"
    assert note in inspect(saved("t5", True)).notes
    assert note not in inspect(changed("t5", "different", tie_word_embeddings=False)).notes
    assert note not in inspect(saved("gpt2", True)).notes


def test_pickle_is_refused(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"anything")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(RequestError, match=r"has pytorch_model.bin and no safetensors: a pickle is not read"):
        inspect(tmp_path)
