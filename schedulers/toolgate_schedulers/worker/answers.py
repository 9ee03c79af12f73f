"""Write one scheduler's answers as items of the wire: checked, repaired if needed, signed with a keyring."""

from collections.abc import Sequence
from typing import Any, Final

from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import (
    AskUser,
    Continue,
    Deny,
    Failure,
    Hold,
    Mask,
    Modify,
    Phase,
    Replace,
    ToolSelecting,
    Verdict,
)
from toolgate_bus.protocol.signing import Keyring, digest
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger

from toolgate_schedulers.worker.holds import ReplyTo
from toolgate_schedulers.worker.verdict_writer import write_verdict

_VERDICTS: Final = (Continue, Deny, Modify, AskUser, Hold, Mask, Replace)
_ADMIT: Final = packing.PHASE_NUMBERS["admit"]
_log = get_logger("toolgate.worker")


class AnswerWriter:
    """Writes the answers of one scheduler, whatever its author's code returned."""

    def __init__(self, name: str, keyring: Keyring | None) -> None:
        self._name, self._keyring = name, keyring
        self.start = ""
        """Id of the replica's current start on the roster. Signed answers name it."""

    def check(self, verdict: Any) -> Verdict | Failure:
        """Return the verdict, or a failure if the answer is no verdict. Such an answer is counted."""
        if isinstance(verdict, _VERDICTS):
            return verdict
        metrics.count(metrics.SCHEDULER_ERRORS, self._name, "nonsense")
        _log.error("the scheduler gave no verdict", scheduler=self._name, got=type(verdict).__name__)
        return Failure(reason=f"it answered {type(verdict).__name__}, which is no verdict")

    def report_exception(self, call: ToolSelecting, error: BaseException) -> Failure:
        """Return a failure for a question on which the author's code raised. Count and log it."""
        metrics.count(metrics.SCHEDULER_ERRORS, self._name, "raised")
        _log.error("the scheduler raised", scheduler=self._name, decision=call.id, exc_info=error)
        return Failure(reason=f"it raised {type(error).__name__}")

    def report_withdrawal(self, decision: str, error: BaseException) -> None:
        """Count and log an error that the author's code raised when it was told of a withdrawal."""
        metrics.count(metrics.SCHEDULER_ERRORS, self._name, "raised")
        _log.error("the scheduler raised", scheduler=self._name, decision=decision, exc_info=error)

    def answer_elsewhere(self, phases: Sequence[Phase], question: packing.Item) -> Continue | Deny:
        """Return the answer to a question in a phase in which the scheduler does not rule."""
        if "select" in phases or "admit" not in phases or question.version > packing.VERSION:
            return codec.PLAIN_CONTINUE
        return Deny(
            reason=f"{self._name} rules on calls just before they run, but this agent does not ask at that "
            "point: its version of Toolgate is older than the scheduler's."
        )

    def item(self, asked: ReplyTo, verdict: Verdict | Failure, revision: str) -> bytes:
        """Return a verdict as an item, in the version of the wire in which its question came."""
        orchestrator, question = asked
        if type(verdict) is Continue and verdict.fence is not None and question.phase != _ADMIT:
            verdict = verdict.model_copy(update={"fence": None})  # only the admit phase grants a slot
        named = revision if question.version > packing.VERSION else ""
        # A plain verdict can always be written, so nothing in it is checked.
        start = self.start if self._keyring is not None and question.version > packing.VERSION else ""
        is_plain = codec.is_plain(verdict)
        body = codec.plain_body(named, start) if is_plain else self._encode(verdict, named, start)
        mac = None
        if self._keyring is not None:
            mac = self._keyring.sign_verdict(
                orchestrator, self._name, digest(question.signature_input), body, question.version
            )
        return packing.item(question.id, question.phase, body, mac, question.version)

    def _encode(self, verdict: Verdict | Failure, revision: str, start: str) -> bytes:
        written = write_verdict(verdict, revision, start)
        if written.trouble is not None:
            metrics.count(metrics.SCHEDULER_ERRORS, self._name, "unwritable")
            sent = written.verdict.action
            _log.error("a verdict was mended", scheduler=self._name, why=written.trouble, sent=sent)
        return written.body
