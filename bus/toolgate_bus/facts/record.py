"""Writes facts, and reads them back in the form in which the record shows them to people.

A fact is a msgpack map with `event`, `seq` (per orchestrator, without gaps) and `at` (seconds
since the epoch by the orchestrator's clock, for display only). Arguments stand in it as they left
the process: redacted. `docs/reference/wire.md` lists the facts.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from toolgate_bus.errors import CodecError
from toolgate_bus.facts.columnar import each_decision, last_offset
from toolgate_bus.facts.validation import check_fact
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import (
    AskUser,
    Continue,
    Decision,
    Deny,
    Failure,
    Hold,
    Mask,
    Modify,
    ReceivedVerdict,
    Replace,
    Verdict,
)
from toolgate_bus.protocol.fact_events import TOLD_AS_DECISION, TOOL_DEFERRED
from toolgate_bus.ruling.results import hide_texts, path_to

_NO_ID: Final = bytes(packing.ID_BYTES)
CUT: Final = "⟦cut: the fact would have been too long⟧"
"""Text that stands for the arguments of a verdict if the fact has no room for them."""
_ABOUT: Final = frozenset(
    {
        *("scheduler", "action", "phase", "priority", "seconds", "revision"),
        *("again", "late", "shadow", "capped", "problem"),
    }
)
"""Fields of a verdict that its author did not write."""
_UNREMARKABLE: Final[Mapping[str, Any]] = {
    "reason": None,
    "scheduler": None,
    "final_tool": None,
    "final_input": None,
    "final_agent": None,
    "asked_user": False,
    "silent": [],
    "passed_over": [],
    "overruled": [],
    "failed_open": {},
    "disagreeing": [],
}
"""Default values of fields that a decision's fact leaves out."""


def verdict_fields(heard: ReceivedVerdict) -> dict[str, Any]:
    """Return one verdict as plain values. Flags that are not set are left out."""
    scheduler, verdict, priority, phase, seconds, late, shadow, problem, capped, _, revision, said, again = (
        heard
    )
    fields: dict[str, Any] = {
        "scheduler": scheduler,
        "action": verdict.action,
        "phase": phase,
        "priority": priority,
        "seconds": seconds,
    }
    if revision:
        fields["revision"] = revision
    if again:
        fields["again"] = True
    if codec.is_plain(verdict) and not (late or shadow or capped or said):
        return fields
    fields |= _say(verdict)
    fields |= {
        flag: True for flag, is_set in (("late", late), ("shadow", shadow), ("capped", capped)) if is_set
    }
    if problem:
        fields["problem"] = problem
    if said is not None:
        fields["said"] = _say(said)
    return fields


def _say(verdict: Verdict | Failure) -> dict[str, Any]:
    """Return what a verdict says, without the priority and what it leaves out.

    Of a result that a verdict gave nothing is told but that it did; of a mask, the places.
    """
    said = {name: value for name, value in vars(verdict).items() if value is not None and name != "priority"}
    if isinstance(verdict, Replace):
        said.pop("result", None)
        said["replaced"] = True
    elif isinstance(verdict, Mask):
        said["masks"] = [list(part) for part in said.pop("parts")]
    if labels := said.get("session_labels"):
        said["session_labels"] = {name: list(values) for name, values in labels.items()}
    return {**said, **verdict.__pydantic_extra__} if verdict.__pydantic_extra__ else said


def clean_verdict(fields: dict[str, Any], hidden: Collection[str]) -> dict[str, Any]:
    """Return the fields of a verdict without these texts in what its author wrote, also in a path."""
    if not hidden:
        return fields
    hidden = {*hidden, *(path_to("", one)[1:] for one in hidden)}
    return {
        name: one if name in _ABOUT else hide_texts(one, hidden, may_be_cut=True)
        for name, one in fields.items()
    }


def decision_fact(
    decision: Decision,
    question: bytes,
    verdicts: list[dict[str, Any]],
    final_input: Any,
    reason: str | None,
    seq: int,
    at: float,
    beside: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the fact of a decision with every verdict.

    `question` is the body that was asked, byte for byte, but for words at a point of a turn that were not
    given. `verdicts` are those of the decision (`verdict_fields`), fit to leave the process. `beside` is the
    result of the function of that name.
    """
    fields: dict[str, Any] = {
        "event": TOOL_DEFERRED if decision.pending else "decision",
        "seq": seq,
        "at": at,
        "id": decision.id,
        "question": question,
        "outcome": decision.outcome,
        "why": decision.why,
        "verdicts": verdicts,
        "seconds": decision.seconds,
    }
    runs = decision.allowed or decision.pending
    if decision.why != "agreed" or decision.asked_user or decision.passed_over or decision.agent_target:
        fields |= {
            "reason": reason,
            "scheduler": decision.scheduler,
            "final_tool": decision.tool_name if runs else None,
            "final_input": final_input,
            "final_agent": decision.agent_target if runs else None,
            "asked_user": decision.asked_user,
            "silent": decision.silent,
            "passed_over": decision.passed_over,
        }
    if decision.waited:
        fields["waited"] = decision.waited
    if beside:
        fields |= beside
    return _item(fields)


def beside(
    decision: Decision, asked: Sequence[str], failed_open: Mapping[str, str], disagreeing: Sequence[str]
) -> dict[str, Any]:
    """Return the fields that the decision itself does not hold; mostly none.

    The asked schedulers are left out if they are the ones with a verdict.
    """
    fields: dict[str, Any] = {}
    if {heard.scheduler for heard in decision.verdicts} != set(asked):
        fields["asked"] = asked
    if failed_open:
        fields["failed_open"] = failed_open
    if disagreeing:
        fields["disagreeing"] = disagreeing
    if any(heard.problem for heard in decision.verdicts) and (overruled := decision.overruled):
        fields["overruled"] = overruled
    return fields


def other_fact(fields: Mapping[str, Any], seq: int, at: float) -> bytes:
    """Return any other fact; `fields` has an `event`."""
    return _item({**fields, "seq": seq, "at": at})


def _item(fields: dict[str, Any]) -> bytes:
    try:
        body = packing.pack(fields)
        if len(body) > packing.MAX_QUESTION:  # a reader would refuse it and its neighbours
            verdicts = [_cut(one) for one in fields.get("verdicts", ())]
            body = packing.pack({**fields, "verdicts": verdicts, "final_input": None, "cut": True})
        if len(body) > packing.MAX_QUESTION:
            raise CodecError("oversize", f"{len(body)} bytes")
    except CodecError as error:  # a fact that cannot be written is still reported
        told = {"seq": fields["seq"], "at": fields["at"], "of": ascii(fields.get("event"))}
        body = packing.pack({"event": "unwritable", **told, "why": str(error)})
    return packing.item(_NO_ID, 0, body)


def _cut(verdict: dict[str, Any]) -> dict[str, Any]:
    cut = {**verdict, "arguments": CUT} if "arguments" in verdict else {**verdict}
    cut.pop("said", None)
    return cut


def read_facts(
    item: packing.Item, has_all: Callable[[int, int], bool] = lambda first, last: False
) -> list[dict[str, Any]]:
    """Return the facts of an item, nearly always one, with a decision's question opened. Raises CodecError.

    `tool_name`, `tool_input`, `session`, `agent`, `labels` … of a decision are the question's. A
    `final_input` of None means the arguments were left as they were. An item is left out unread if a reader
    has all its numbers, from the first to the last: most of the facts that a writer writes again are known.
    """
    fields = packing.unpack(item.body, packing.MAX_FRAME, packing.MAX_FRAME)
    if not isinstance(fields, dict) or not isinstance(fields.get("event"), str):
        raise CodecError("malformed", "a fact is a map with an event")
    first, more = fields.get("seq"), last_offset(fields) if fields["event"] == "agreed" else 0
    if type(first) is int and has_all(first, first + more):
        return []
    if fields["event"] == "agreed":
        return [_open_question(one) for one in each_decision(fields)]
    return [_open_question(fields) if fields["event"] in TOLD_AS_DECISION else check_fact(fields)]


def _open_question(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a decision with the fields of its question in place of the question's bytes."""
    question = fields.pop("question", None)
    if not isinstance(question, bytes):
        raise CodecError("malformed", "a decision has the bytes of its question")
    asked = packing.unpack(question)
    if not isinstance(asked, dict):
        raise CodecError("malformed", "the question of a decision is a map")
    told = {name: value for name, value in fields.items() if value is not None}
    fields = {**asked, **_UNREMARKABLE, **told}
    if "asked" not in told:
        heard = fields["verdicts"] if isinstance(fields.get("verdicts"), list) else ()
        names = [one.get("scheduler") for one in heard if isinstance(one, dict)]
        fields["asked"] = list(dict.fromkeys(name for name in names if isinstance(name, str)))
    fields = check_fact(fields)
    if fields["outcome"] == "continue" and fields["final_tool"] is None:
        fields["final_tool"] = fields["tool_name"]
    if fields["final_tool"] is not None and fields["final_input"] is None and not fields.get("cut"):
        fields["final_input"] = fields["tool_input"]
    if fields["final_tool"] is not None and fields["final_agent"] is None:
        fields["final_agent"] = fields.get("agent_target")
    return fields


_SAID: Final = frozenset(
    name for kind in (Continue, Deny, Modify, AskUser, Hold, Mask, Failure) for name in kind.model_fields
) - {"priority", "seconds", "parts"}
"""Fields that are a verdict's own words; others are about it. A hold's `seconds` are its own words."""


def read_verdict(fields: Any) -> ReceivedVerdict:
    """Read one of a fact's `verdicts`, or the verdict of a `verdict` fact. Raises CodecError.

    Arguments that were cut are read as the one argument `CUT`. No record has the result that a verdict gave:
    it is read as None.
    """
    if not isinstance(fields, Mapping):
        raise CodecError("malformed", "a verdict is a map")
    name, phase, seconds = fields.get("scheduler"), fields.get("phase"), fields.get("seconds")
    priority, problem = fields.get("priority"), fields.get("problem")
    if not isinstance(name, str) or phase not in packing.PHASES or type(priority) is not int:
        raise CodecError("malformed", "a verdict has a scheduler, a phase and a priority")
    body = {key: value for key, value in fields.items() if key in _SAID}
    if body.get("action") == "hold":
        body["seconds"] = seconds
    if body.get("arguments") == CUT:
        body["arguments"] = {CUT: None}
    _read_on_result(body, fields)
    return ReceivedVerdict(
        name,
        codec.verdict(packing.pack(body)),
        priority,
        phase,
        float(seconds) if isinstance(seconds, int | float) else 0.0,
        late=fields.get("late") is True,
        shadow=fields.get("shadow") is True,
        problem=problem if isinstance(problem, str) else None,
        capped=fields.get("capped") is True,
        revision=revision if isinstance(revision := fields.get("revision"), str) else "",
        said=_read_said(fields.get("said")),
        again=fields.get("again") is True,
    )


def _read_said(fields: Any) -> Verdict | None:
    if not isinstance(fields, Mapping):
        return None
    body = {**fields}
    _read_on_result(body, fields)
    said = codec.verdict(packing.pack(body))
    return None if isinstance(said, Failure) else said


def _read_on_result(body: dict[str, Any], fields: Mapping[str, Any]) -> None:
    """Put into a verdict on a result what the record has of it."""
    if body.get("action") == "mask":
        body["parts"] = fields.get("masks")
        body.pop("masks", None)
    elif body.get("action") == "replace":
        body["result"] = None
        body.pop("replaced", None)
