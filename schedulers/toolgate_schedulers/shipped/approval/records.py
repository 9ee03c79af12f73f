"""What is known of a call that waits for a person, and what the person said. Pure values and their bytes.

An approval's id is taken of the scheduler, the decision, the phase and the digest of the call: it
names exactly one call. Whatever changes in the call, it is another approval.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import ToolSelecting

ID_DIGITS = 32
_LIMIT = packing.MAX_QUESTION + 16_384

Short = Annotated[str, Field(max_length=256)]
Words = Annotated[str, Field(max_length=1024)]


class _ApprovalRecord(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)


class Approval(_ApprovalRecord):
    """A call that needs a person."""

    id: Short
    scheduler: Short
    digest: Short
    question: ToolSelecting
    """The call as it travelled: redacted and over-long values are placeholders."""
    rule: Words = ""
    """The rule that asked, as it is called; empty where the record of it is gone."""
    rule_key: Short = ""
    prompt: Words | None = None
    expires_s: float = 0.0
    always: bool = False
    """Whether later calls of the session may be let pass at once."""


class ApprovalAnswer(_ApprovalRecord):
    """What a person said about one approval."""

    action: Literal["approve", "deny", "edit"]
    decision: Short
    digest: Short
    """Of the call that the person saw."""
    tool: Short | None = None
    arguments: dict[str, Any] | None = None
    """`tool` and `arguments`: what is to run instead; `edit` only."""
    reason: Words | None = None
    by: Short = ""
    host: Short = ""
    at: float = 0.0
    """Wall-clock time where it was given; for people, never compared."""


class StandingApproval(_ApprovalRecord):
    """Later calls that pass without asking: "always for this session"."""

    id: Short
    scheduler: Short
    session: Short
    tool: Short
    rule: Words
    digest: Short | None = None
    """Only the call with this digest; None: any arguments."""
    reason: Words | None = None
    by: Short = ""
    host: Short = ""
    at: float = 0.0


Record = TypeVar("Record", bound=_ApprovalRecord)


def digest(tool: str, arguments: Mapping[str, Any], agent_target: str | None = None) -> str:
    """SHA-256, in hexadecimal, of the canonical JSON of a call."""
    canonical = json.dumps(
        [tool, arguments, agent_target], sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def digest_of(question: ToolSelecting) -> str:
    """The digest of the call that a question is about."""
    return digest(question.tool_name, question.tool_input, question.agent_target)


def approval_id(scheduler: str, decision: str, phase: str, call_digest: str) -> str:
    """32 hexadecimal digits that name one call in one phase of one decision."""
    return _hash_words(scheduler, decision, phase, call_digest)


def always_id(approval: Approval, call_digest: str | None) -> str:
    """What names the calls like this one in its session: looked up, never searched for.

    With a digest only this very call is meant, else any arguments for which the same rule asks.
    """
    call = approval.question
    return _hash_words(
        "always", approval.scheduler, call.session, approval.rule_key, call.tool_name, call_digest or ""
    )


def _hash_words(*words: str) -> str:
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:ID_DIGITS]


def pack_record(record: _ApprovalRecord) -> bytes:
    """A record's bytes; raises CodecError for what cannot be written."""
    return packing.pack(record.model_dump(exclude_none=True))


def unpack_record(model: type[Record], raw: bytes | None) -> Record | None:
    """The record in some bytes; None for none, and for what is no such record."""
    if raw is None:
        return None
    try:
        return model.model_validate(packing.unpack(raw, _LIMIT))
    except (CodecError, ValidationError):
        return None
