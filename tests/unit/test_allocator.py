"""Freed memory stays with a run's process: what counts is how often the kernel must hand out pages."""

import resource
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from tielab.allocator import keep_freed_memory
import ctypes
if sys.argv[1] == "kept":
    assert keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    block = libc.malloc(ctypes.c_size_t(40 * 2**20))
    ctypes.memset(block, 1, 40 * 2**20)
    libc.free(block)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(arm):
    ran = subprocess.run([sys.executable, "-c", PROGRAM, arm], capture_output=True, text=True, check=True)
    return int(ran.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's settings")
def test_a_block_that_is_freed_and_asked_for_again_is_cleared_once():
    pages = 40 * 2**20 // resource.getpagesize()
    assert page_faults("kept") < 2 * pages
    assert page_faults("given back") > 5 * page_faults("kept")
