"""How this process's C library deals with freed memory."""

import ctypes

# Of glibc's malloc.h. Negative numbers are its own.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
TOP_PAD_BYTES = 2**26


def keep_freed_memory() -> bool:
    """Make the C library keep memory that is freed instead of giving it back; says whether it can.

    By default glibc asks the kernel for each large tensor, and gives it back when the tensor dies; a
    training step then waits for the kernel to clear the same pages again and again. Kept, they take a tenth
    to a quarter more memory at the peak, since holes between them do not always fit.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    settings = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 2**31 - 1, M_TOP_PAD: TOP_PAD_BYTES}
    taken = [mallopt(name, value) == 1 for name, value in settings.items()]
    return all(taken)
