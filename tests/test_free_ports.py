"""Ports that a test was given are its own, also while the server there is down."""

import subprocess
import sys
from pathlib import Path

import free_ports
import pytest

pytestmark = pytest.mark.pure
ASK = "import sys, free_ports; print([port for port in map(int, sys.argv[1:]) if free_ports._keep(port)])"


def test_no_other_process_finds_a_port_that_is_given_and_a_server_can_listen_there():
    given = free_ports.find_free_ports(5)
    assert all(map(free_ports.is_free, given))
    here = Path(free_ports.__file__).parent
    words = [sys.executable, "-c", ASK, *map(str, given)]
    assert subprocess.run(words, cwd=here, capture_output=True, text=True, check=True).stdout == "[]\n"
    assert not set(given) & set(free_ports.find_free_ports(50))
