"""Safetensors files whose values are holes: as large as one likes, and all zero."""

import json
import math
import struct

from tielab.inspection.headers import BITS


def write_safetensors(path, tensors, **changes):
    """Write a file for {name: (dtype, shape)}; return where its values begin.

    Args:
        changes: name=(begin, end), for a header that says another thing.
    """
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + math.prod(shape) * BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": list(changes.get(name, (begin, end)))}
    return write_header(path, json.dumps(header).encode(), end)


def write_header(path, text, num_value_bytes=0):
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + num_value_bytes)
    return 8 + len(text)
