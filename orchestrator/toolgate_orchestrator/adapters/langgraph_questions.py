"""A question to a person as LangGraph keeps it: the value of its `interrupt`, and where to find it again.

A run that is resumed calls its tool anew, perhaps in another process. By the question that is found again the
call goes on with the decision that it had. Nothing of LangGraph is imported: its config is read.
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
"""Where our part stands in a question."""


def key_of(call: Call, config: Mapping[str, Any]) -> str:
    """By what a call is known again: an id, or a message, is not this thread's alone."""
    thread = str(config.get("configurable", {}).get("thread_id") or "")
    session, agent = (call.at.session, call.at.agent) if call.at else ("", "")
    return call_key(session, agent, thread, call.tool, call.id, arguments=call.arguments)


def keep(kept: OrderedDict[Any, dict[str, Any]], key: Any, value: dict[str, Any]) -> None:
    """As the newest, of `MAX_KEPT` at most."""
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > MAX_KEPT:
        kept.popitem(last=False)


class QuestionMemory:
    """Those of one process whose answer is to come."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Any, dict[str, Any]] = OrderedDict()

    def find(self, key: str) -> dict[str, Any] | None:
        """The question about the call of this key."""
        return self._kept.get(key)

    def ask(
        self,
        key: str,
        call: Call,
        question: dict[str, Any] | None,
        ruling: Ruling | None,
        interrupt: Callable[[dict[str, Any]], Any],
    ) -> Call:
        """Leaves with the question, or gives the call with its answer, once there is one."""
        if question is None:
            assert ruling is not None  # noqa: S101 - for types: one of both is there
            question = make_question(key, call, ruling)
        keep(self._kept, key, question)
        said = interrupt(question)
        self._kept.pop(key, None)
        return call._replace(answer=answer_of(question, said))


def make_question(key: str, call: Call, ruling: Ruling) -> dict[str, Any]:
    """In the format of HumanInTheLoopMiddleware; whoever has the token may answer, as who resumes may."""
    words = ruling.prompt.prompt if ruling.prompt else ""
    return {
        "action_requests": [{"name": ruling.tool, "args": ruling.arguments, "description": words}],
        "review_configs": [{"action_name": ruling.tool, "allowed_decisions": ["approve", "reject"]}],
        OURS: {"id": call.id, "call": key, "token": ruling.token},
    }


def answer_of(question: Mapping[str, Any], said: Any) -> PersonAnswer:
    """What a run was resumed with, as that middleware reads it; whatever is no approval is a refusal."""
    decisions = said.get("decisions") if isinstance(said, Mapping) else None
    one = decisions[0] if isinstance(decisions, list) and decisions else said
    allows = isinstance(one, Mapping) and one.get("type") == "approve"
    answer: Literal["allow", "refuse"] = "allow" if allows else "refuse"
    return PersonAnswer(question[OURS]["token"], answer)


def find_checkpoint(config: Mapping[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """The checkpointer, and where the run stands that is resumed here; None where none is.

    By keys of LangGraph's own: without them a call whose asker is another process is decided anew.
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
    """The question about the call of this key in what a checkpointer gave."""
    for _, channel, value in (kept and kept.pending_writes) or ():
        for one in value if channel == "__interrupt__" else ():
            question = getattr(one, "value", None)
            ours = question.get(OURS) if isinstance(question, dict) else None
            if isinstance(ours, dict) and ours.get("call") == key and isinstance(ours.get("token"), str):
                return question
    return None
