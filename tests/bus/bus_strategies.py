"""Generated verdicts, questions and JSON-like values for the property tests of the pure core."""

from typing import Any

from hypothesis import strategies as st
from toolgate_bus.protocol.codec import verdict_body
from toolgate_bus.protocol.events import (
    AskUser,
    Continue,
    Deny,
    Failure,
    Hold,
    Mask,
    Modify,
    ReceivedVerdict,
    Replace,
    Verdict,
)
from toolgate_bus.protocol.signing import digest

__all__ = ["NAMES", "finals", "heards", "json_maps", "json_values", "verdicts"]

NAMES = ("alpha", "beta", "gamma")
"""Few names, so that one scheduler is often heard several times."""

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
reasons = st.none() | texts
priorities = st.none() | st.integers(-(2**31), 2**31 - 1)
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)
scalars = st.none() | st.booleans() | numbers | texts
json_values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
json_maps = st.dictionaries(texts, json_values, max_size=5)
seconds = st.floats(0.001, 86_400)

finals: st.SearchStrategy[Verdict] = st.one_of(
    st.builds(Continue, reason=reasons, priority=priorities),
    st.builds(Deny, reason=texts, priority=priorities),
    st.builds(
        Modify,
        tool=texts,
        arguments=st.none() | json_maps,
        reason=reasons,
        agent_target=reasons,
        priority=priorities,
    ),
    st.builds(
        AskUser,
        prompt=texts,
        options=st.lists(texts, max_size=3).map(tuple),
        timeout_s=seconds,
        default=st.sampled_from(["allow", "deny"]),
        reason=reasons,
        priority=priorities,
    ),
)
"""Answers that end a scheduler's turn."""

parts = st.tuples(
    texts,
    st.none() | st.integers(0, 2**40),
    st.none() | st.integers(0, 2**40),
    texts.filter(lambda one: len(one) < 9),
)
labels = st.dictionaries(
    st.sampled_from(["source", "a.b:c/d@e-f_1"]),
    st.lists(st.sampled_from(["x", "y"]), min_size=1, max_size=2).map(tuple),
    max_size=2,
)
on_results: st.SearchStrategy[Verdict] = st.one_of(
    st.builds(
        Mask,
        parts=st.lists(parts, min_size=1, max_size=3).map(tuple),
        reason=reasons,
        priority=priorities,
        session_labels=st.none() | labels,
    ),
    st.builds(Replace, result=json_values, reason=reasons, priority=priorities),
)
"""Answers about results."""

verdicts: st.SearchStrategy[Verdict | Failure] = st.one_of(
    finals,
    on_results,
    st.builds(Hold, seconds=seconds, reason=reasons, priority=priorities),
    st.builds(Failure, reason=reasons, priority=priorities),
)
"""Everything a worker may send."""

small_finals = st.sampled_from(
    [
        Continue(),
        Deny(reason="no"),
        Deny(reason="never"),
        Modify(tool="other", arguments={"a": 1}),
        Modify(tool="third"),
        AskUser(prompt="may I?"),
    ]
)


def heards(answers: st.SearchStrategy[Any] = small_finals) -> st.SearchStrategy[ReceivedVerdict]:
    """Verdicts as heard; few values, so that ties and repetitions are common."""
    return st.builds(
        ReceivedVerdict,
        scheduler=st.sampled_from(NAMES),
        verdict=answers,
        priority=st.integers(-1, 1),
        late=st.sampled_from([False, False, False, True]),
        shadow=st.sampled_from([False, False, False, True]),
        problem=st.none(),
        phase=st.just("select"),
        seconds=st.just(0.0),
        capped=st.just(False),
        digest=st.just(b""),
        said=st.none(),
    ).flatmap(_perhaps_invalid)


def _perhaps_invalid(heard: ReceivedVerdict) -> st.SearchStrategy[ReceivedVerdict]:
    heard = heard._replace(digest=digest(verdict_body(heard.verdict)))
    if heard.verdict.action != "modify":
        return st.just(heard)
    problems = st.sampled_from([None, None, "schema", "unavailable_tool"])
    return problems.map(lambda problem: heard._replace(problem=problem))
