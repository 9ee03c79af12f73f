"""What two servers say of themselves, and when one has handed over to the other: no server."""

import pytest
from toolgate_bus.transport.redis.client.handover import Move, Role, is_handed_over, parse_role

pytestmark = pytest.mark.pure

OLD, NEW, OTHER = ("a", 6379), ("b", 6380), ("c", 6381)
MOVE = Move(OLD, NEW)
FOLLOWS, PRIMARY = Role(False, NEW, True), Role(True)


def test_a_primary_has_handed_over_once_it_follows_the_one_chosen_and_that_one_is_primary():
    assert is_handed_over(MOVE, FOLLOWS, PRIMARY)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (PRIMARY, PRIMARY),  # a split brain, a plain failover, a replica that lies
        (FOLLOWS, FOLLOWS._replace(follows=OTHER)),  # a chain of replicas
        (FOLLOWS._replace(follows=OTHER), PRIMARY),  # an operator had it follow another
        (FOLLOWS._replace(follows=OLD), PRIMARY),
        (FOLLOWS._replace(is_taken=False), PRIMARY),  # which has not taken it yet, and may refuse
        (FOLLOWS._replace(follows=None), PRIMARY),
        (None, PRIMARY),  # killed
        (FOLLOWS, None),
        (None, None),
    ],
)
def test_what_one_end_says_alone_or_both_say_otherwise_is_no_handover(old, new):
    assert not is_handed_over(MOVE, old, new)


@pytest.mark.parametrize(
    ("said", "role"),
    [
        ([b"master", 7, []], PRIMARY),
        ([b"slave", b"b", 6380, b"connected", 7], FOLLOWS),
        ([b"slave", b"b", 6380, b"sync", 7], FOLLOWS._replace(is_taken=False)),
        ([b"slave", b"b", 6380, b"connecting", -1], FOLLOWS._replace(is_taken=False)),
        ([b"slave", b"\xff" * 300, 6380, b"connected", 7], FOLLOWS._replace(follows=None)),
        ([b"slave", b"b", 99999999, b"connected", 7], FOLLOWS._replace(follows=None)),
        ([b"slave", b"b", b"x", b"connected", 7], FOLLOWS._replace(follows=None)),
        ([b"slave", 7, 6380, b"connected", 7], None),
        ([b"slave", b"b"], None),
        ([b"sentinel", [b"fleet"]], None),
        ([], None),
        (b"master", None),
        (None, None),
    ],
)
def test_a_role_is_read_off_what_a_server_says(said, role):
    assert parse_role(said) == role
