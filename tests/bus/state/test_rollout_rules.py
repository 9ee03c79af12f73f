"""Who is in a share, and when a rollout undoes itself."""

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_bus.state.rollout_rules import TrialCounts, in_share, judge, parse_condition


@pytest.mark.parametrize("share", [1, 10, 50, 99])
def test_a_share_is_that_share_and_only_grows(share):
    sessions = [f"session-{number}" for number in range(5000)]
    inside = {one for one in sessions if in_share("r", one, share)}
    assert abs(len(inside) / 50 - share) < 2
    assert all(in_share("r", one, share + 1) for one in inside)
    assert inside != {one for one in sessions if in_share("other", one, share)}


SEEN = TrialCounts(asked=100, vetoes=30, was_asked=900, was_vetoes=90, errors=2, compared=50, disagreed=5)


@pytest.mark.parametrize(
    ("condition", "undone"),
    [
        ("veto_rate > 2x", True),
        ("veto_rate > 3x", False),
        ("veto_rate >= 3x", True),
        ("veto_rate > 25%", True),
        ("error_rate > 0.05", False),
        ("error_rate > 0.01", True),
        ("disagreement > 9.9%", True),
        ("error_rate > 5% or veto_rate > 2x", True),
        ("", False),
    ],
)
def test_a_condition_is_met_or_not(condition, undone):
    assert (judge(condition, SEEN, 20) is not None) is undone


def test_too_few_calls_say_nothing():
    assert judge("veto_rate > 2x", SEEN, 101) is None


@pytest.mark.parametrize(
    "wrong", ["x", "veto_rate", "veto_rate > ", "veto_rate < 2x", "disagreement > 2x", "veto_rate > 5",
              "veto_rate > 2x or", "veto_rate > 1e9", "veto_rate > 2x " * 20],
)  # fmt: skip
def test_what_is_no_condition_is_refused(wrong):
    with pytest.raises(ConfigError, match="--undo-if"):
        parse_condition(wrong)
