"""The port at which the processes of a run meet."""

import contextlib
import socket
from datetime import timedelta

import pytest
import torch.distributed

from tielab.processes import port_of_ones_own


def test_a_held_port_is_given_to_nobody_else_and_torch_can_listen_there():
    with contextlib.ExitStack() as held:
        ports = [held.enter_context(port_of_ones_own()) for _ in range(50)]
        assert len(set(ports)) == 50
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("", ports[0]))
        for _ in range(2):  # one that has closed is no obstacle to the next
            store = torch.distributed.TCPStore(
                "127.0.0.1", ports[0], is_master=True, timeout=timedelta(seconds=20)
            )
            store.set("met", "yes")
            assert store.get("met") == b"yes"
            del store
    with socket.socket() as other:
        other.bind(("", ports[1]))
