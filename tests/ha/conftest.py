"""What the tests of failovers use: worlds of servers, and the processes of the acceptance tests."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_world import ClusterWorld, cluster_world
from sentinel_world import SentinelWorld, sentinel_world

ACCEPTANCE = Path(__file__).parents[1] / "acceptance"
# A conftest of another folder is none of ours until it is loaded.
_spec = importlib.util.spec_from_file_location("acceptance_fixtures", ACCEPTANCE / "conftest.py")
assert _spec is not None
assert _spec.loader is not None
acceptance = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = acceptance
_spec.loader.exec_module(acceptance)

schedulers_on = acceptance.schedulers_on


@pytest.fixture
def sentinels() -> Iterator[SentinelWorld]:
    """A primary, two replicas and three sentinels of the test's own."""
    with sentinel_world() as world:
        yield world


@pytest.fixture
def cluster() -> Iterator[ClusterWorld]:
    """Three masters with a replica each, of the test's own."""
    with cluster_world() as world:
        yield world
