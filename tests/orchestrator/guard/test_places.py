"""Who works for whom is remembered for those who work for somebody now, however many came since."""

import pytest
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.guard import callers
from toolgate_orchestrator.guard.callers import Callers

pytestmark = pytest.mark.pure


@pytest.fixture
def known(monkeypatch):
    """The places of one guard that remembers four sessions."""
    monkeypatch.setattr(callers, "MAX_SESSIONS", 4)
    return Callers(parse({}))


def test_a_parent_for_whom_many_work_is_not_forgotten(known):
    top = known.find("top", "boss", None, None)
    known.find("mid", "clerk", top, None)
    for number in range(20):
        child = known.find(f"child-{number}", "scout", "mid", None)
    assert (child.root, child.lineage) == ("top", ("boss", "clerk", "scout"))


def test_who_handed_over_stays_in_the_lineage_however_many_hand_over_elsewhere(known):
    known.hand_over(known.find("s", "boss", None, None), "clerk", lineage=True)
    for number in range(20):
        known.hand_over(known.find(f"s-{number}", "boss", None, None), "clerk", lineage=True)
        assert known.find("s", "clerk", None, None).lineage == ("boss", "clerk")
