"""Questions to a person as LangGraph keeps them: as values of `interrupt`, found again when a run is resumed.

A resumed run calls its tool again, perhaps in another process. The kept question leads the new call to the
decision that it already has. The module reads LangGraph's config and imports nothing of it.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.question.call import Call
from toolgate_orchestrator.decision.question.canonical import call_key
from toolgate_orchestrator.guard.ruling import Ruling

MAX_KEPT: Final = 4_096
OURS: Final = "toolgate"
"""Key of Toolgate's part of a question."""


def key_of(call: Call, config: Mapping[str, Any]) -> str:
    """Return the key that identifies a call. It includes the thread: other threads may have the same ids."""
    thread = str(config.get("configurable", {}).get("thread_id") or "")
    session, agent = (call.at.session, call.at.agent) if call.at else ("", "")
    return call_key(session, agent, thread, call.tool, call.id, arguments=call.arguments)


def keep(kept: OrderedDict[Any, dict[str, Any]], key: Any, value: dict[str, Any]) -> None:
    """Add a value as the newest, and drop the oldest beyond `MAX_KEPT`."""
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > MAX_KEPT:
        kept.popitem(last=False)


class QuestionMemory:
    """The unanswered questions of one process."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Any, dict[str, Any]] = OrderedDict()

    def find(self, key: str) -> dict[str, Any] | None:
        """Return the question about the call with this key; None if there is none."""
        return self._kept.get(key)

    def ask(
        self,
        key: str,
        call: Call,
        question: dict[str, Any] | None,
        ruling: Ruling | None,
        interrupt: Callable[[dict[str, Any]], Any],
    ) -> Call:
        """Return the call with the person's answer. Without an answer, `interrupt` raises and leaves the
        run."""
        if question is None:
            assert ruling is not None  # noqa: S101 - for types: one of both is there
            question = make_question(key, call, ruling)
        keep(self._kept, key, question)
        said = interrupt(question)
        self._kept.pop(key, None)
        return call._replace(answer=answer_of(question, said))


def make_question(key: str, call: Call, ruling: Ruling) -> dict[str, Any]:
    """Return the question in the format of HumanInTheLoopMiddleware. Anyone who can resume the run can answer
    it."""
    words = ruling.prompt.prompt if ruling.prompt else ""
    return {
        "action_requests": [{"name": ruling.tool, "args": ruling.arguments, "description": words}],
        "review_configs": [{"action_name": ruling.tool, "allowed_decisions": ["approve", "reject"]}],
        OURS: {"id": call.id, "call": key, "token": ruling.token},
    }


def answer_of(question: Mapping[str, Any], said: Any) -> PersonAnswer:
    """Read the answer with which a run was resumed, as that middleware does. Anything but an approval is a
    refusal."""
    decisions = said.get("decisions") if isinstance(said, Mapping) else None
    one = decisions[0] if isinstance(decisions, list) and decisions else said
    allows = isinstance(one, Mapping) and one.get("type") == "approve"
    answer: Literal["allow", "refuse"] = "allow" if allows else "refuse"
    return PersonAnswer(question[OURS]["token"], answer)


def how_to_ask(config: Mapping[str, Any]) -> Literal["defer"] | None:
    """Return how the guard asks a person about a call of this run: None, as the guard itself does, if nothing
    could be resumed.

    Without a checkpointer LangGraph ends the run at an interrupt, without a word. It reads a private key.
    """
    return None if config.get("configurable", {}).get("__pregel_checkpointer", "") is None else "defer"


def find_checkpoint(config: Mapping[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """Return the checkpointer and the config of the run that is resumed here; None if no run is resumed.

    It reads private keys of LangGraph. Without them, a call whose question another process asked is decided
    again.
    """
    at = config.get("configurable", {})
    saver, pad = at.get("__pregel_checkpointer"), at.get("__pregel_scratchpad")
    if not hasattr(saver, "get_tuple") or pad is None:
        return None
    if not pad.resume and pad.get_null_resume(False) is None and not at.get("__pregel_resume_map"):
        return None
    graph = str(at.get("checkpoint_ns", "")).rpartition("|")[0]
    return saver, {"configurable": {"thread_id": at["thread_id"], "checkpoint_ns": graph}}


def find_question(key: str, kept: Any) -> dict[str, Any] | None:
    """Return the question about the call with this key from a checkpoint; None if there is none."""
    for _, channel, value in (kept and kept.pending_writes) or ():
        for one in value if channel == "__interrupt__" else ():
            question = getattr(one, "value", None)
            ours = question.get(OURS) if isinstance(question, dict) else None
            if isinstance(ours, dict) and ours.get("call") == key and isinstance(ours.get("token"), str):
                return question
    return None
