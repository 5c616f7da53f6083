"""What is said of loading is what transformers does."""

import pytest

from tielab.inspection.inspect import inspect
from tielab.inspection.loading import InFile

KINDS = {
    "one": InFile.ONE, "equal": InFile.EQUAL, "different": InFile.DIFFERENT, "head_only": InFile.HEAD_ONLY,
}  # fmt: skip
RANDOM = "random numbers"


def load(transformers, folder):
    is_t5 = "t5" in (folder / "config.json").read_text()
    kind = transformers.AutoModelForSeq2SeqLM if is_t5 else transformers.AutoModelForCausalLM
    return kind.from_pretrained(folder, output_loading_info=True)


@pytest.mark.parametrize("tied", [True, False, None])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3", "t5"])
def test_loading_is_foretold(changed, transformers, family, kind, tied):
    """None: the config does not say, so the family's default holds."""
    folder = changed(family, kind, tie_word_embeddings=tied)
    found = inspect(folder)
    assert found.in_file == KINDS[kind]
    model, info = load(transformers, folder)
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    assert found.on_load.tied is (embedding is head)
    assert (RANDOM in found.on_load.words) is bool(info["missing_keys"])
    assert found.num_parameters == sum(p.numel() for p in model.parameters())


def test_disagreements_are_those_of_file_and_config(changed):
    for kind, tied, disagrees in (
        ("one", True, False), ("one", False, True), ("different", True, True), ("different", False, False),
        ("equal", True, False), ("equal", False, True),
        ("head_only", True, False), ("head_only", False, True),
    ):  # fmt: skip
        found = inspect(changed("qwen2", kind, tie_word_embeddings=tied))
        assert found.disagrees is disagrees, (kind, tied)


def test_loader_refuses_two_tensors_in_one_place(tmp_path):
    from safetensors import SafetensorError, safe_open

    from inspection_files import write_safetensors

    file = tmp_path / "model.safetensors"
    ends = {"wte.weight": ("F32", [6, 2]), "lm_head.weight": ("F32", [6, 2])}
    write_safetensors(file, ends, **{"lm_head.weight": (0, 48)})
    found = inspect(file)
    assert found.in_file == InFile.ONE_PLACE
    assert found.on_load.words.startswith("refused")
    with pytest.raises(SafetensorError, match="invalid offset for tensor"), safe_open(file, framework="pt"):
        pass


def test_nothing_is_foretold_of_an_unknown_family(changed):
    found = inspect(changed("llama", "one", model_type="martian", tie_word_embeddings=False))
    assert found.on_load.tied is None
    assert found.on_load.words == ""
    assert found.disagrees
    assert found.tied
