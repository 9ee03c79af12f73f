"""Define the records of calls that wait for a person and of the answers, and encode them.

An approval's id is a hash of the scheduler, the decision, the phase and the digest of the call. It names
exactly one call: if anything in the call changes, it is another approval.
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
    """Call that needs a person."""

    id: Short
    scheduler: Short
    digest: Short
    question: ToolSelecting
    """Call as the scheduler received it: redacted and over-long values are placeholders."""
    rule: Words = ""
    """Name of the rule that asked; empty if the record of the call is gone."""
    rule_key: Short = ""
    prompt: Words | None = None
    expires_s: float = 0.0
    always: bool = False
    """True if the person may let later calls of the session pass as well."""


class ApprovalAnswer(_ApprovalRecord):
    """Person's answer to one approval."""

    action: Literal["approve", "deny", "edit"]
    decision: Short
    digest: Short
    """Digest of the call that the person saw."""
    tool: Short | None = None
    arguments: dict[str, Any] | None = None
    """Tool and arguments to run instead. For `edit` only."""
    reason: Words | None = None
    by: Short = ""
    host: Short = ""
    at: float = 0.0
    """Wall-clock time of the answer on its host, in seconds since the epoch; shown to people, never
    compared."""


class StandingApproval(_ApprovalRecord):
    """Approval that lets later calls pass without asking: "always for this session"."""

    id: Short
    scheduler: Short
    session: Short
    tool: Short
    rule: Words
    digest: Short | None = None
    """Digest of the only call that passes; None for any arguments."""
    reason: Words | None = None
    by: Short = ""
    host: Short = ""
    at: float = 0.0


Record = TypeVar("Record", bound=_ApprovalRecord)


def digest(tool: str, arguments: Mapping[str, Any], agent_target: str | None = None) -> str:
    """Return the SHA-256 of a call's canonical JSON, in hexadecimal."""
    canonical = json.dumps(
        [tool, arguments, agent_target], sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def digest_of(question: ToolSelecting) -> str:
    """Return the digest of the call that a question is about."""
    return digest(question.tool_name, question.tool_input, question.agent_target)


def approval_id(scheduler: str, decision: str, phase: str, call_digest: str) -> str:
    """Return the 32 hexadecimal digits that name one call in one phase of one decision."""
    return _hash_words(scheduler, decision, phase, call_digest)


def always_id(approval: Approval, call_digest: str | None) -> str:
    """Return the id of the standing approval for calls like this one in its session.

    With a digest it covers this very call only; without, any arguments for which the same rule asks.
    """
    call = approval.question
    return _hash_words(
        "always", approval.scheduler, call.session, approval.rule_key, call.tool_name, call_digest or ""
    )


def _hash_words(*words: str) -> str:
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:ID_DIGITS]


def pack_record(record: _ApprovalRecord) -> bytes:
    """Encode a record; raise CodecError if it cannot be written."""
    return packing.pack(record.model_dump(exclude_none=True))


def unpack_record(model: type[Record], raw: bytes | None) -> Record | None:
    """Decode a record; None for no bytes or for bytes of another form."""
    if raw is None:
        return None
    try:
        return model.model_validate(packing.unpack(raw, _LIMIT))
    except (CodecError, ValidationError):
        return None
