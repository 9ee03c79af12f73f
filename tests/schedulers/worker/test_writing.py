"""Whatever an author puts into a verdict, what travels is never weaker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.protocol import codec
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Failure, Hold, Mask, Modify, Replace
from toolgate_schedulers.worker.verdict_writer import write_verdict

pytestmark = pytest.mark.pure

anything = st.one_of(
    st.none(),
    st.integers(),
    st.floats(),
    st.text(st.characters(), max_size=20),  # lone surrogates among them
    st.just("x" * 70_000),
    st.lists(st.integers(), max_size=3),
    st.just({"a": {"b": "\ud800"}}),
)
KINDS = (Continue, Deny, Modify, AskUser, Hold, Mask, Replace, Failure)
BECOMES = {"modify": {"modify", "deny"}, "mask": {"mask", "deny"}, "replace": {"replace", "deny"}}


@st.composite
def verdicts(draw):
    kind = draw(st.sampled_from(KINDS))
    fields = {name: draw(anything) for name in kind.model_fields if name != "action" and draw(st.booleans())}
    return kind.model_construct(**fields)


@pytest.mark.filterwarnings("ignore::UserWarning")  # pydantic's, of fields that are not what they should be
@given(verdicts(), st.sampled_from(["", "r1"]))
def test_what_is_written_can_be_read_and_says_no_less(verdict, revision):
    written = write_verdict(verdict, revision)
    read = codec.decode_verdict(written.body, 2 if revision else 1)
    assert read.verdict.action == written.verdict.action
    lost = {"deny"} if getattr(verdict, "session_labels", None) is not None else set()
    assert written.verdict.action in BECOMES.get(verdict.action, {verdict.action}) | lost
    assert read.revision == revision


@pytest.mark.parametrize(
    "verdict",
    [Deny(reason="no"), Continue(reason="ok"), Modify(tool="t", arguments={"a": [1]}), Hold(seconds=2)],
)
def test_what_can_be_written_is_written_as_it_is(verdict):
    assert write_verdict(verdict) == (verdict, codec.verdict_body(verdict), None)


def test_the_words_are_kept_as_far_as_they_can_be():
    written = write_verdict(Deny(reason="never \ud800 rm -rf"))
    assert codec.verdict(written.body) == Deny(reason="never ? rm -rf")
    assert written.trouble is not None
