"""Which process writes, known before Lightning has numbered the processes."""

import os

from lightning.fabric.utilities.rank_zero import rank_zero_only


def is_global_rank_zero() -> bool:
    """True in exactly one process of a run, whenever it is asked.

    Lightning's own number is fixed when it is imported and again when the strategy starts. A process
    that got its LOCAL_RANK between the two, as one forked from a server does, still reads 0 there.
    """
    if getattr(rank_zero_only, "rank", 0) != 0:
        return False
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK", "NODE_RANK"))
