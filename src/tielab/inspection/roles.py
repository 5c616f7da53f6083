"""Which tensor is the token embedding, which the LM head: by the names architectures give them.

V vocabulary, d width. Imports no torch.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tielab.errors import RequestError
from tielab.inspection.headers import Tensor

SHARED = r"(model\.)?shared"
"""One table for encoder and decoder: T5, BART."""
EMBEDDING = "|".join([
    SHARED,
    r"(.*\.)?embed_tokens",  # Llama, Qwen, Mistral, Gemma, OPT
    r"(transformer\.|model\.)*wte",  # GPT-2, GPT-J, MPT, nanoGPT
    r"(.*\.)?word_embeddings",  # BERT, BLOOM, Falcon
    r"(gpt_neox\.)?embed_in",
    r"(backbone|transformer)\.embeddings?",  # Mamba
    r"(model\.)?tok_embeddings",  # Llama and Mistral as their makers store them
    r"(model\.)?token_embed",  # MiniGPT
    r"(model\.)?embeddings\.tok_embeddings",  # ModernBERT
])  # fmt: skip
HEAD = "|".join([
    r"(.*\.)?lm_head",
    r"(.*\.)?lm_head\.decoder",  # RoBERTa
    r"embed_out",  # GPT-NeoX
    r"cls\.predictions\.decoder",  # BERT
    r"(predictions\.|head\.)?decoder",  # ALBERT, ModernBERT
    r"vocab_projector|generator_lm_head",  # DistilBERT, ELECTRA
    r"proj_out|output_projection",  # Whisper, BioGPT
    r"output",  # Llama and Mistral as their makers store them
])  # fmt: skip
POSITION = r"(.*\.)?(wpe|embed_positions|position_embeddings?|position_embed)"
PATTERNS = {
    role: re.compile(rf"(?:{pattern})\.weight")
    for role, pattern in (("embedding", EMBEDDING), ("head", HEAD), ("position", POSITION))
}
PACKED_HEAD = re.compile(rf"(?:{HEAD})\.(qweight|weight_packed)")
BUFFER = re.compile(
    r"(.*\.)?(attn|attention|self_attn)\.(masked_)?bias|(.*\.)?(position_ids|token_type_ids|g_idx|inv_freq)"
    r"|final_logits_bias"
)
"""What some files hold beside the parameters: causal masks, positions, frequencies, BART's constant bias."""


@dataclass(frozen=True)
class Roles:
    """The tensors that deal with the vocabulary."""

    embedding: Tensor | None
    """V x d, looked up by token id."""
    head: Tensor | None
    """V x d, scores the final hidden states; None: there is no such tensor."""
    copies: tuple[Tensor, ...]
    """Further token embeddings, such as those of an encoder and a decoder beside a shared one."""
    position: Tensor | None
    packed_head: str | None = None
    """Name of a head whose numbers are packed several to an element, so that it is no V x d matrix."""
    by_shape: bool = False
    """Whether no name was known, and tensors with as many rows as the vocabulary were taken."""


def find_roles(tensors: Iterable[Tensor], vocab_size: int | None) -> Roles:
    """The tensors that deal with the vocabulary, by name, else by their number of rows.

    Args:
        vocab_size: as the config says.

    Raises:
        RequestError: there are none.
    """
    tensors = list(tensors)
    matrices = [tensor for tensor in tensors if len(tensor.shape) == 2]
    found = {
        role: [tensor for tensor in matrices if pattern.fullmatch(tensor.name)]
        for role, pattern in PATTERNS.items()
    }
    empty = next((tensor for tensor in found["embedding"] + found["head"] if not tensor.num_elements), None)
    if empty is not None:
        raise RequestError(
            f"{empty.name} is {' x '.join(map(str, empty.shape))}, without an element: the training that "
            "saved it had its values elsewhere; save the whole model"
        )
    head = _one_head(found["head"], found["embedding"])
    position = found["position"][0] if found["position"] else None
    if not found["embedding"] and head is None:
        return _by_shape(matrices, vocab_size)
    embedding = _main_embedding(found["embedding"], head)
    copies = tuple(tensor for tensor in found["embedding"] if tensor is not embedding)
    packed = next((tensor.name for tensor in tensors if PACKED_HEAD.fullmatch(tensor.name)), None)
    return Roles(embedding, head, copies, position, packed)


def _one_head(heads: Sequence[Tensor], embeddings: Sequence[Tensor]) -> Tensor | None:
    """The head of an embedding's shape, else the largest of its width: a ``decoder`` may be many things."""
    shapes, widths = {t.shape for t in embeddings}, {t.shape[1] for t in embeddings}
    fitting = [tensor for tensor in heads if not embeddings or tensor.shape[1] in widths]
    return max(fitting, key=lambda tensor: (tensor.shape in shapes, tensor.num_elements), default=None)


def _main_embedding(embeddings: Sequence[Tensor], head: Tensor | None) -> Tensor | None:
    """The shared table if there is one, else the one that fits the head, the decoder's first."""

    def rank(tensor: Tensor) -> tuple[bool, bool, bool, int]:
        fits = head is not None and tensor.shape == head.shape
        is_shared = re.fullmatch(rf"(?:{SHARED})\.weight", tensor.name) is not None
        return is_shared, fits, "decoder" in tensor.name, tensor.num_elements

    return max(embeddings, key=rank, default=None)


def _by_shape(matrices: Sequence[Tensor], vocab_size: int | None) -> Roles:
    fitting = [tensor for tensor in matrices if vocab_size is not None and tensor.shape[0] == vocab_size]
    if not 1 <= len(fitting) <= 2:
        known = "no vocab_size is known" if vocab_size is None else f"{len(fitting)} have {vocab_size} rows"
        raise RequestError(
            f"no tensor has the name of a token embedding or an LM head, and by their shapes {known}; "
            "give a language model with its config.json"
        )
    head = fitting[1] if len(fitting) == 2 else None
    return Roles(fitting[0], head, (), None, by_shape=True)


def is_parameter(tensor: Tensor) -> bool:
    """Whether a tensor is trained, by its name: masks, positions and frequencies are not."""
    return BUFFER.fullmatch(tensor.name) is None or _is_bias(tensor)


def _is_bias(tensor: Tensor) -> bool:
    """GPT-2's ``attn.bias`` is a mask of four dimensions; elsewhere a bias of one."""
    return tensor.name.endswith(".bias") and len(tensor.shape) == 1 and tensor.shape != (1,)
