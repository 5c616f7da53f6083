"""What transformers makes of a file and a config when it loads a model. Imports no torch.

Each row was seen by loading such a file with transformers 5.24, in tests/unit/inspection/test_loading.py;
other versions need not do the same.
"""

from enum import Enum
from typing import NamedTuple

from tielab.inspection.families import ALWAYS_TIED, ModelConfig


class InFile(Enum):
    """What a file holds of the two ends, in words."""

    ONE = "one matrix: no LM head beside the token embedding"
    HEAD_ONLY = "one matrix: an LM head and no token embedding"
    ONE_PLACE = "one matrix under two names: both are the same bytes"
    EQUAL = "one matrix stored twice: equal byte for byte"
    DIFFERENT = "two matrices: their bytes differ"
    UNLIKE = "two matrices: of unlike shape or dtype"
    PACKED = "two matrices: the head is packed"

    @property
    def is_tied(self) -> bool:
        """Whether it is one matrix, be it stored twice."""
        return self in (InFile.ONE, InFile.HEAD_ONLY, InFile.ONE_PLACE, InFile.EQUAL)

    @property
    def is_half(self) -> bool:
        """Whether one end is missing, so that a model with two matrices needs another."""
        return self in (InFile.ONE, InFile.HEAD_ONLY)


class Loaded(NamedTuple):
    """A model as transformers has it in memory."""

    tied: bool | None
    """Null: not known."""
    words: str
    """What happens; empty if not known."""


UNKNOWN = Loaded(None, "")
OF_TIED = {
    InFile.ONE: Loaded(True, "tied: the head is the token embedding"),
    InFile.HEAD_ONLY: Loaded(True, "tied: the token embedding is the head"),
    InFile.EQUAL: Loaded(True, "tied: one of the two equal matrices is dropped"),
    InFile.DIFFERENT: Loaded(
        False, "untied, with a warning: both matrices are kept, since their values differ"
    ),
}
OF_UNTIED = {
    InFile.ONE: Loaded(False, "untied, with a warning: the head is made of random numbers"),
    InFile.HEAD_ONLY: Loaded(False, "untied, with a warning: the token embedding is made of random numbers"),
    InFile.EQUAL: Loaded(False, "untied: two matrices that are equal until they are trained"),
    InFile.DIFFERENT: Loaded(False, "untied: each end has its own matrix"),
}


def loaded(in_file: InFile, config: ModelConfig | None) -> Loaded:
    """What becomes of a file when transformers loads it with its config."""
    if in_file == InFile.ONE_PLACE:
        return Loaded(None, "refused: the safetensors library takes no two tensors of the same bytes")
    if config is None or not config.is_known:
        return UNKNOWN
    if in_file.is_half and not config.has_head:
        return Loaded(None, f"without a head: {config.architecture} has none")
    tied = config.family in ALWAYS_TIED or config.tied
    if tied is None:
        return UNKNOWN
    return (OF_TIED if tied else OF_UNTIED).get(in_file, UNKNOWN)
