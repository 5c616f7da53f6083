"""Tied or not: in the file, in the config, and on loading; what the two ends cost. Imports no torch.

V vocabulary, d width.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tielab.errors import RequestError
from tielab.inspection.families import ModelConfig, read_config
from tielab.inspection.headers import Tensor, Weights, read_weights
from tielab.inspection.loading import InFile, Loaded, loaded
from tielab.inspection.roles import Roles, find_roles, is_parameter

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Inspection:
    """What is known of a model's two ends without loading it."""

    path: Path
    weights: Weights
    config: ModelConfig | None
    roles: Roles
    in_file: InFile
    num_compared_bytes: int
    """Read of both matrices to tell whether they are equal."""
    on_load: Loaded
    num_parameters: int
    """Of the model as it is loaded: a copy counts once, a matrix that is made anew as well, a mask never."""
    num_bytes: int
    """Of these."""
    notes: tuple[str, ...]

    @property
    def matrix(self) -> Tensor:
        """The V x d matrix that stands for both, or the one of the two that looks ids up."""
        found = self.roles.embedding or self.roles.head
        assert found is not None, "find_roles gives one of them"
        return found

    @property
    def tied(self) -> bool:
        """Whether the model has one matrix: as it is loaded, else as it is stored."""
        return self.in_file.is_tied if self.on_load.tied is None else self.on_load.tied

    @property
    def has_head(self) -> bool:
        return not self.in_file.is_half or self.config is None or self.config.has_head

    @property
    def disagrees(self) -> bool:
        """Whether file and config say different things of the tie."""
        said = None if self.config is None else self.config.tied
        return self.has_head and said is not None and said != self.in_file.is_tied

    @property
    def dtypes(self) -> list[str]:
        """Of the parameters, the one with the most bytes first."""
        num_bytes: dict[str, int] = {}
        for tensor in filter(is_parameter, self.weights.tensors.values()):
            num_bytes[tensor.dtype] = num_bytes.get(tensor.dtype, 0) + tensor.num_bytes
        return sorted(num_bytes, key=lambda dtype: -num_bytes[dtype])


def inspect(path: Path) -> Inspection:
    """What the file or folder of a model says of its tie.

    Only headers are read; of an embedding and a head beside it as many bytes as it takes to find a
    difference, a mebibyte at a time.

    Raises:
        RequestError: it is no safetensors, is damaged, or holds no embedding and no head.
    """
    weights = read_weights(path)
    config = read_config(path if path.is_dir() else path.parent)
    try:
        roles = find_roles(weights.tensors.values(), config.vocab_size if config else None)
    except RequestError as error:
        raise RequestError(f"{path}: {error}") from None
    in_file, num_compared = _compare(roles)
    on_load = loaded(in_file, config)
    tied = in_file.is_tied if on_load.tied is None else on_load.tied
    counted = list(_counted(weights, roles, tied))
    made = [roles.embedding or roles.head] if in_file.is_half and on_load.tied is False else []
    return Inspection(
        path=path,
        weights=weights,
        config=config,
        roles=roles,
        in_file=in_file,
        num_compared_bytes=num_compared,
        on_load=on_load,
        num_parameters=sum(tensor.num_elements for tensor in [*counted, *made] if tensor),
        num_bytes=sum(tensor.num_bytes for tensor in [*counted, *made] if tensor),
        notes=tuple(_notes(weights, roles, config, tied)),
    )


def _compare(roles: Roles) -> tuple[InFile, int]:
    """What a file holds of the two ends, and how many bytes were read to find out."""
    embedding, head = roles.embedding, roles.head
    if head is None:
        return (InFile.ONE if roles.packed_head is None else InFile.PACKED), 0
    if embedding is None:
        return InFile.HEAD_ONLY, 0
    if embedding.place == head.place:
        return InFile.ONE_PLACE, 0
    if (embedding.shape, embedding.dtype) != (head.shape, head.dtype):
        return InFile.UNLIKE, 0
    equal, num_bytes = same_bytes(embedding, head)
    return (InFile.EQUAL if equal else InFile.DIFFERENT), num_bytes


def same_bytes(one: Tensor, other: Tensor) -> tuple[bool, int]:
    """Whether two tensors of one size hold the same bytes, and how many were read: up to a difference."""
    num_read = 0
    with one.file.open("rb") as first, other.file.open("rb") as second:
        first.seek(one.begin)
        second.seek(other.begin)
        for done in range(0, one.num_bytes, CHUNK_BYTES):
            size = min(CHUNK_BYTES, one.num_bytes - done)
            left, right = first.read(size), second.read(size)
            num_read += len(left) + len(right)
            if left != right:
                return False, num_read
            if len(left) < size:
                raise RequestError(f"{one.file} became shorter while it was read; get the file again")
    return True, num_read


def _counted(weights: Weights, roles: Roles, tied: bool) -> Iterator[Tensor]:
    """The parameters of the model that a file holds, each once."""
    doubles = {tensor.name for tensor in roles.copies if _is_copy(tensor, roles.embedding)}
    if tied and roles.head is not None and roles.embedding is not None:
        doubles.add(roles.head.name)
    for tensor in weights.tensors.values():
        if is_parameter(tensor) and tensor.name not in doubles:
            yield tensor


def _is_copy(tensor: Tensor, original: Tensor | None) -> bool:
    if original is None or (tensor.shape, tensor.dtype) != (original.shape, original.dtype):
        return False
    return tensor.place == original.place or same_bytes(tensor, original)[0]


def _notes(weights: Weights, roles: Roles, config: ModelConfig | None, tied: bool) -> Iterator[str]:
    """What a reader must know to take the numbers for what they are."""
    if roles.by_shape:
        yield "no tensor has a known name: those with vocab_size rows were taken, in the order of the file"
    yield from _notes_on_size(roles, config)
    if config is not None and config.scaled_output and tied:
        yield "before the tied head the hidden states are multiplied by d ** -0.5"
    if config is not None and config.quantization is not None:
        yield (
            f"quantised ({config.quantization}): an element may hold several parameters, or a part of one; "
            "count bytes instead"
        )
    buffers = [tensor for tensor in weights.tensors.values() if not is_parameter(tensor)]
    if buffers:
        count = sum(tensor.num_elements for tensor in buffers)
        yield f"left out: {len(buffers)} masks and other buffers of {count:,} elements"
    unlike = [t.name for t in roles.copies if not _is_copy(t, roles.embedding)]
    if unlike:
        yield f"further token embeddings with values of their own: {', '.join(unlike)}"


def _notes_on_size(roles: Roles, config: ModelConfig | None) -> Iterator[str]:
    asked = None if config is None else config.vocab_size
    for tensor in (roles.embedding, roles.head):
        if tensor is None or asked is None or tensor.shape[0] == asked:
            continue
        rows = tensor.shape[0]
        kind = f"{rows - asked:,} more: padding" if rows > asked else f"{asked - rows:,} fewer"
        yield f"{tensor.name} has {rows:,} rows, {kind}; the config says vocab_size {asked:,}"
