"""Safetensors headers: every tensor's name, type, shape and place, without a byte of its values.

A file is 8 bytes with the header's length N, N bytes of JSON, and the values. It may be a stranger's, so
nothing in it is believed before it is checked against the file's size. Imports no torch.
Source: the format's description, https://github.com/huggingface/safetensors.
"""

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tielab.errors import RequestError

MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""
MAX_JSON_BYTES = 100_000_000
"""Of an index or a config."""
INDEX_NAME = "model.safetensors.index.json"
SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d+)-of-(?P<count>\d+)\.safetensors")

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "C64": 64,
    "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E5M2FNUZ": 8, "F8_E4M3FNUZ": 8,
    "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
"""Of an element."""


@dataclass(frozen=True)
class Tensor:
    """A tensor as its file's header describes it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    begin: int
    """First byte of its values in the file."""

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        return self.num_elements * BITS[self.dtype] // 8

    @property
    def place(self) -> tuple[Path, int, int]:
        return self.file, self.begin, self.num_bytes


@dataclass(frozen=True)
class Weights:
    """The tensors of one model, in one file or in several."""

    files: tuple[Path, ...]
    tensors: dict[str, Tensor]


def read_weights(path: Path) -> Weights:
    """The headers of a safetensors file, or of all shards of the model in a folder.

    Raises:
        RequestError: no such file, not safetensors, damaged, or a shard is missing.
    """
    if path.is_dir():
        files = _files_of_model(path)
    elif path.is_file():
        _check_whole([path], path)
        files = [path]
    else:
        raise RequestError(f"{path}: no such file or folder; give a safetensors file or a model's folder")
    tensors: dict[str, Tensor] = {}
    for file in files:
        for tensor in read_header(file):
            if tensor.name in tensors:
                first = tensors[tensor.name].file.name
                raise RequestError(
                    f"{path}: {tensor.name} is in {first} and in {file.name}, so these are several models; "
                    "give one file"
                )
            tensors[tensor.name] = tensor
    index = path / INDEX_NAME
    if path.is_dir() and index.is_file() and files[0].name != "model.safetensors":
        _check_index(_weight_map(index), tensors, index)
    return Weights(tuple(files), tensors)


def read_header(path: Path) -> list[Tensor]:
    """The tensors of one file, in the order of their bytes.

    Raises:
        RequestError: the file is not safetensors, or its header does not fit it.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 10 or length > size - 8 or length > MAX_HEADER_BYTES:
                raise _damaged(path, f"a header of {length:,} bytes in a file of {size:,}")
            content = _loads(file.read(length), path)
    except OSError as error:
        raise RequestError(f"{path} cannot be read ({error.strerror})") from None
    if not isinstance(content, dict):
        raise _damaged(path, "its header is not an object")
    content.pop("__metadata__", None)
    tensors = [_tensor(name, entry, path, 8 + length, size) for name, entry in content.items()]
    tensors.sort(key=lambda tensor: (tensor.begin, tensor.num_bytes))
    _check_overlap(tensors, path)
    return tensors


def read_json(path: Path) -> Any:
    """What a JSON file holds.

    Raises:
        RequestError: it cannot be read, is too large, or is not JSON.
    """
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise RequestError(f"{path} is larger than {MAX_JSON_BYTES:,} bytes; it is not a model's")
        return _loads(path.read_bytes(), path)
    except OSError as error:
        raise RequestError(f"{path} cannot be read ({error.strerror})") from None


def _loads(text: bytes, path: Path) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) != len(pairs):
            raise ValueError("a key twice in one object")
        return content

    try:
        return json.loads(text.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        header = " is not safetensors: its header" if path.suffix == ".safetensors" else ""
        raise RequestError(f"{path}{header} is not JSON ({reason}); get the file again") from None


def _tensor(name: str, entry: Any, path: Path, data: int, size: int) -> Tensor:
    """A header's entry, checked.

    Args:
        data: where the values begin in the file.
        size: of the file.
    """
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = [*shape, begin, end]
    except (KeyError, TypeError, ValueError):
        raise _damaged(path, f"{name} has no dtype, shape and data_offsets") from None
    if not isinstance(dtype, str) or dtype not in BITS:
        raise RequestError(f"{path}: {name} has dtype {dtype}, known are {', '.join(BITS)}")
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise _damaged(path, f"{name} has shape {shape} at bytes {begin} to {end}")
    tensor = Tensor(name, dtype, tuple(shape), path, data + begin)
    if tensor.num_elements * BITS[dtype] != 8 * (end - begin) or data + end > size:
        raise _damaged(
            path, f"{name} {dtype} {list(shape)} at bytes {begin} to {end} of {size - data:,} bytes of values"
        )
    return tensor


def _check_overlap(tensors: Sequence[Tensor], path: Path) -> None:
    """Two tensors are apart or in the very same place; the format allows the latter to none, we name it."""
    end, place = 0, (path, 0, 0)
    for tensor in tensors:
        if tensor.begin < end and tensor.place != place:
            raise _damaged(path, f"{tensor.name} overlaps the tensor before it")
        end, place = tensor.begin + tensor.num_bytes, tensor.place


def _damaged(path: Path, found: str) -> RequestError:
    return RequestError(f"{path} is truncated or not safetensors: {found}; get the file again")


def _files_of_model(folder: Path) -> list[Path]:
    """The files that hold a folder's model, chosen as transformers does: one file, an index, any shards."""
    whole, index = folder / "model.safetensors", folder / INDEX_NAME
    if whole.is_file():
        return [whole]
    if index.is_file():
        names = sorted(set(_weight_map(index).values()))
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise RequestError(f"{index} names {missing[0]}, which is not there; get the file as well")
        return [folder / name for name in names]
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise RequestError(_nothing_there(folder))
    _check_whole(files, folder)
    return files


def _nothing_there(folder: Path) -> str:
    pickles = sorted(
        path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for path in folder.glob(pattern)
    )
    if pickles:
        return f"{folder} has {pickles[0]} and no safetensors: a pickle is not read here; convert it first"
    return f"{folder}: no safetensors file there; give a model's folder or file, or the folder of a run"


def _weight_map(index: Path) -> dict[str, str]:
    """Tensor names with their files, from an index; each is a plain name in its folder."""
    content = read_json(index)
    names = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(names, dict) or not names:
        raise RequestError(f"{index} has no weight_map; get the file again")
    for file in names.values():
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
            raise RequestError(f"{index} names {file}, which is no safetensors file beside it")
    return names


def _check_index(names: dict[str, str], tensors: dict[str, Tensor], index: Path) -> None:
    for name, file in names.items():
        if name not in tensors or tensors[name].file.name != file:
            raise RequestError(f"{index} places {name} in {file}, which does not hold it; get both again")


def _check_whole(files: Iterable[Path], asked: Path) -> None:
    """Refuse some of the shards of a model: what is not in them may be in the others."""
    counts: dict[tuple[str, int], set[int]] = {}
    for file in files:
        shard = SHARD.fullmatch(file.name)
        if shard is not None:
            counts.setdefault((shard["stem"], int(shard["count"])), set()).add(int(shard["number"]))
    for (stem, count), numbers in counts.items():
        if len(numbers) < count:
            found = "1 shard" if len(numbers) == 1 else f"{len(numbers)} shards"
            raise RequestError(
                f"{asked}: {found} of the {count} of {stem}: the others may hold the head; "
                "give the folder with all of them"
            )
