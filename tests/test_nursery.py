"""The parent of the processes under test tells of births and deaths, whenever they come."""

import array
import os
import socket
import threading
from pathlib import Path

import pytest
from nursery import Nursery

pytestmark = pytest.mark.pure


def test_a_child_that_ends_before_its_birth_is_handled_has_ended() -> None:
    nursery = Nursery()
    nursery._link, theirs = socket.socketpair()
    with nursery._link, theirs, Path(__file__).open() as file:

        def answer() -> None:
            for taken in socket.recv_fds(theirs, 4, 3)[1]:
                os.close(taken)
            theirs.sendall(b"born 7\ndead 7 256\n")

        parent = threading.Thread(target=answer)
        parent.start()
        child = nursery.start(["doctor"], {}, None, array.array("i", 3 * [file.fileno()]))
        parent.join()
        assert (child.pid, child.poll()) == (7, 1)
        nursery._link = None
