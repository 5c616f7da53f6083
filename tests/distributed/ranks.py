"""Real processes in one gloo group that call one function, without a run around it."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

from tielab.processes import port_of_ones_own


def in_ranks(function, *arguments, num_ranks=2):
    """What function(*arguments) returns in each of so many processes that form a group."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tielab.launch", "tielab.experiment"])
    with port_of_ones_own() as port, ProcessPoolExecutor(num_ranks, mp_context=context) as pool:
        calls = [pool.submit(_call, rank, num_ranks, port, function, arguments) for rank in range(num_ranks)]
        return [call.result(timeout=150) for call in calls]


def _call(rank, num_ranks, port, function, arguments):
    import torch

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=num_ranks)
    try:
        return function(*arguments)
    finally:
        torch.distributed.destroy_process_group()
