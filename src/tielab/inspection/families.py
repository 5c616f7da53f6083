"""What a Hugging Face ``config.json`` says of the tie of a model. Imports no torch."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tielab.errors import RequestError
from tielab.inspection.headers import read_json

CONFIG_NAME = "config.json"
TEXT_SECTIONS = ("text_config", "llm_config", "language_config")
"""Where a model of several modalities keeps what is of its language model."""
TIED_BY_DEFAULT = frozenset([
    "albert", "bart", "bert", "biogpt", "bloom", "cohere", "cohere2", "deberta-v2", "distilbert",
    "electra", "falcon", "gemma", "gemma2", "gemma3", "gemma3_text", "gpt2", "gpt_bigcode", "gpt_neo",
    "longt5", "m2m_100", "mamba", "marian", "mbart", "mistral3", "modernbert", "mpt", "mt5",
    "openai-gpt", "opt", "pegasus", "roberta", "smollm3", "starcoder2", "switch_transformers", "t5", "umt5",
    "whisper", "xlm-roberta",
])  # fmt: skip
UNTIED_BY_DEFAULT = frozenset([
    "codegen", "deepseek_v3", "exaone4", "glm", "glm4", "gpt_neox", "gpt_oss", "gptj", "granite",
    "llama", "llama4", "llava", "mamba2", "mistral", "mixtral", "nemotron", "olmo", "olmo2", "phi",
    "phi3", "qwen2", "qwen2_5_vl", "qwen2_moe", "qwen2_vl", "qwen3", "qwen3_moe", "stablelm",
])  # fmt: skip
"""``model_type`` by what ``tie_word_embeddings`` is in transformers 5.24 where the config does not say it."""
ALWAYS_TIED = frozenset(["longt5", "mt5", "t5", "umt5"])
"""Tied whatever the config says: there ``tie_word_embeddings=false`` only says that the decoder's output is
not scaled by d ** -0.5."""
LM_ARCHITECTURES = ("CausalLM", "ConditionalGeneration", "LMHead", "MaskedLM", "PreTraining", "DoubleHeads")
"""Parts of the names of classes that have an LM head."""


@dataclass(frozen=True)
class ModelConfig:
    """What a ``config.json`` says of the two ends of a model."""

    family: str | None
    """``model_type``."""
    architecture: str | None
    vocab_size: int | None
    tied: bool | None
    """As the config or the family's default has it; null: neither says."""
    source: str
    """What says so."""
    scaled_output: bool
    """Whether hidden states are multiplied by d ** -0.5 before the tied head, as T5 does."""
    quantization: str | None

    @property
    def is_known(self) -> bool:
        """Whether the family is one of those whose defaults are known here."""
        return self.family in TIED_BY_DEFAULT | UNTIED_BY_DEFAULT

    @property
    def has_head(self) -> bool:
        """Whether the architecture scores the vocabulary; one that is not named may."""
        return self.architecture is None or any(part in self.architecture for part in LM_ARCHITECTURES)


def read_config(folder: Path) -> ModelConfig | None:
    """What the ``config.json`` of a folder says; None: there is none.

    Raises:
        RequestError: it is no JSON object.
    """
    path = folder / CONFIG_NAME
    if not path.is_file():
        return None
    content = read_json(path)
    if not isinstance(content, dict):
        raise RequestError(f"{path} is not the config of a model: found no keys")
    sections = (content.get(name) for name in TEXT_SECTIONS)
    text: dict[str, Any] = next((section for section in sections if isinstance(section, dict)), {})
    family = _text(content.get("model_type"))
    tied, source = _tie(content, text, family)
    quantization = content.get("quantization_config")
    method = quantization.get("quant_method", "unnamed") if isinstance(quantization, dict) else None
    architectures = content.get("architectures")
    return ModelConfig(
        family=family,
        architecture=_text(architectures[0]) if isinstance(architectures, list) and architectures else None,
        vocab_size=_count(content.get("vocab_size", text.get("vocab_size"))),
        tied=tied,
        source=source,
        scaled_output=_is_scaled(content, family),
        quantization=_text(method),
    )


def _tie(content: dict[str, Any], text: dict[str, Any], family: str | None) -> tuple[bool | None, str]:
    """Whether the model is tied, and what says so."""
    outer, inner = content.get("tie_word_embeddings"), text.get("tie_word_embeddings")
    if isinstance(outer, bool) and isinstance(inner, bool) and outer != inner:
        return None, f"tie_word_embeddings is {_word(outer)}, in the text part {_word(inner)}"
    for value in (outer, inner):
        if isinstance(value, bool):
            return value, f"tie_word_embeddings is {_word(value)}"
        if value is not None:
            return None, f"tie_word_embeddings is {json.dumps(value)[:40]}, neither true nor false"
    if family in TIED_BY_DEFAULT:
        return True, f"the default of {family}"
    if family in UNTIED_BY_DEFAULT:
        return False, f"the default of {family}"
    return None, f"not said, and no default of {family or 'an unnamed family'} is known here"


def _is_scaled(content: dict[str, Any], family: str | None) -> bool:
    said = content.get("scale_decoder_outputs")
    if isinstance(said, bool):
        return said
    return family in ("t5", "umt5", "longt5") and content.get("tie_word_embeddings") is not False


def _word(value: bool) -> str:
    return str(value).lower()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None
