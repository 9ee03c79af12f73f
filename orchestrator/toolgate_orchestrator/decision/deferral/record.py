"""A decision that waits for a person while no process waits for it: its token and its stored form.

Other processes can read the stored form, so it is redacted as all data that leaves. Whoever resumes the
decision is given the same call again. The token is the right to answer. Its secret is stored nowhere else,
and seals the stored form, the call and the caller. So whoever can write to the server can forge neither an
answer nor the verdicts, and a call that has changed does not run on this answer. The store, and resuming,
are in `deferred_decisions`.
"""

import hashlib
import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import CodecError
from toolgate_bus.facts import record
from toolgate_bus.protocol.events import Outcome, ReceivedVerdict, ToolQuestion, Why
from toolgate_bus.protocol.packing import MAX_FRAME, pack, unpack
from toolgate_bus.protocol.placeholders import MARK, WHOLE
from toolgate_bus.protocol.signing import make_signature

from toolgate_orchestrator.decision.question.plain_values import put_back, to_plain
from toolgate_orchestrator.decision.question.question import UnreadableQuestion
from toolgate_orchestrator.decision.question.redact import restore

_TOKEN: Final = re.compile(r"([0-9a-f]{32})\.([A-Za-z0-9_-]{64})")
SECRET_BYTES: Final = 16
_USE: Final = b"toolgate deferral 2"
_MAX_COUNT: Final = 1_000_000


class Token(NamedTuple):
    """Token that an answer must bring."""

    id: str
    """Id of the decision."""
    secret: bytes
    seal: bytes

    def __str__(self) -> str:
        return f"{self.id}.{urlsafe_b64encode(self.secret + self.seal).decode()}"

    @property
    def lock(self) -> bytes:
        """Digest that is stored, to recognize the secret."""
        return hashlib.sha256(_USE + self.secret).digest()

    def seals(self, namespace: str, body: bytes, question: ToolQuestion) -> bool:
        """Return whether the token was made for this stored form and this call, in this namespace."""
        return hmac.compare_digest(self.seal, _seal(self.secret, namespace, self.id, body, question))


def make_token(secret: bytes, namespace: str, body: bytes, question: ToolQuestion) -> Token:
    """Return the token of a decision with this stored form. Raise UnreadableQuestion."""
    return Token(question.id, secret, _seal(secret, namespace, question.id, body, question))


def read_token(text: Any) -> Token | None:
    """Return the token that a text spells, or None if it spells none."""
    found = _TOKEN.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    raw = urlsafe_b64decode(found[2])
    return Token(found[1], raw[:SECRET_BYTES], raw[SECRET_BYTES:])


def _seal(secret: bytes, namespace: str, id_: str, body: bytes, question: ToolQuestion) -> bytes:
    arguments = to_plain(question.tool_input)
    asked = [question.session, question.agent, question.tool_name, question.agent_target, arguments]
    sealed = bytes.fromhex(id_), hashlib.sha256(body).digest(), digest_value(asked)
    return make_signature(secret, namespace, "deferral", *sealed)[1:]


def digest_value(value: Any) -> bytes:
    """Return a digest that tells a plain value from others. Raise UnreadableQuestion if it is not plain."""
    digest, todo, left = hashlib.sha256(), [value], _MAX_COUNT
    while todo:
        left -= 1
        if not left:
            raise UnreadableQuestion("its arguments hold too many values")
        one = todo.pop()
        if isinstance(one, str):
            text = one.encode("utf-8", "surrogatepass")
            digest.update(b"s%d:" % len(text) + text)
        elif one is None or isinstance(one, bool):
            digest.update(b"%r:" % one)
        elif type(one) in (int, float):
            digest.update(b"n%r:" % one if type(one) is float else b"i%x:" % one)
        elif isinstance(one, list | tuple):
            digest.update(b"l%d:" % len(one))
            todo += one
        elif isinstance(one, dict) and all(type(key) is str for key in one):
            digest.update(b"m%d:" % len(one))
            todo += [part for key in sorted(one) for part in (key, one[key])]
        else:
            raise UnreadableQuestion(f"its arguments hold a {type(one).__name__}, which is not a plain value")
    return digest.digest()


class DeferredDecision(NamedTuple):
    """All that is known of a decision when a person is to be asked."""

    lock: bytes
    session: str
    question: bytes
    """Question of the first round, as it was sent."""
    verdicts: tuple[ReceivedVerdict, ...]
    asked: tuple[str, ...]
    silent: tuple[str, ...]
    passed_over: tuple[str, ...]
    failed_open: Mapping[str, str]
    seconds: float
    """Seconds that the decision had taken."""
    outcome: Outcome
    """Outcome if the person agrees."""
    why: Why
    reason: str | None
    scheduler: str | None
    asker: str
    """Scheduler that wants the person asked."""
    final_tool: str
    final_input: dict[str, Any] | None
    """Arguments that would run, with placeholders. None: the call's own."""
    final_agent: str | None

    def write(self, verdicts: Sequence[Mapping[str, Any]]) -> bytes:
        """Return the form to store, with verdicts as they may leave the process. Raise CodecError."""
        told = [{**fields, "digest": one.digest} for fields, one in zip(verdicts, self.verdicts, strict=True)]
        return pack({**self._asdict(), "failed_open": dict(self.failed_open), "verdicts": told})

    def find_hidden(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the value of each placeholder of the question, from the same call's arguments."""
        travelled = self.travelled
        whole = travelled.get(WHOLE)
        if len(travelled) == 1 and isinstance(whole, str) and whole.startswith(MARK):
            return {whole: to_plain(dict(arguments))}
        return dict(_compare(travelled, to_plain(arguments)))

    @property
    def travelled(self) -> dict[str, Any]:
        """Arguments of the question, as they were sent."""
        found = self._asked.get("tool_input")
        return found if isinstance(found, dict) else {}

    def put_in_place(self, question: ToolQuestion) -> ToolQuestion:
        """Return the question about the same call, with the tree, agents and labels of the first question."""
        asked = self._asked
        root, parent = asked.get("root_session", ""), asked.get("parent")
        lineage, labels = asked.get("lineage", []), asked.get("labels", {})
        return question._replace(root_session=root, parent=parent, lineage=list(lineage), labels=dict(labels))

    @property
    def _asked(self) -> dict[str, Any]:
        fields = unpack(self.question)
        return fields if isinstance(fields, dict) else {}

    def restore_final(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the arguments that would run instead of the call's own. Raise BadPlaceholder.

        Arguments that were left as they were are the call's own object (`validation.final_arguments`).
        """
        if self.final_input is None:
            return None
        found = restore(self.final_input, self.find_hidden(arguments), allowed=True)
        if not isinstance(found, dict):
            return None
        plain = to_plain(arguments)
        is_other = plain is arguments or self.final_tool != self._asked.get("tool_name")
        return found if is_other else put_back(found, plain, arguments)


def read_deferred(body: bytes) -> DeferredDecision | None:
    """Read the stored form; return None if it is none. Trust it only if a token seals it."""
    try:
        fields = unpack(body, MAX_FRAME)
        verdicts = tuple(
            record.read_verdict(one)._replace(digest=bytes(one["digest"])) for one in fields["verdicts"]
        )
        for name in ("asked", "silent", "passed_over"):
            fields[name] = tuple(map(str, fields[name]))
        found = DeferredDecision(**{**fields, "verdicts": verdicts})
    except (CodecError, TypeError, KeyError, ValueError, AttributeError):
        return None
    return found if isinstance(found.lock, bytes) and isinstance(found.session, str) else None


def _compare(travelled: Any, own: Any) -> Iterator[tuple[str, Any]]:
    """Yield each placeholder with the value in its place; the two structures are otherwise alike."""
    if isinstance(travelled, str):
        if travelled.startswith(MARK):
            yield travelled, own
    elif isinstance(travelled, dict) and isinstance(own, Mapping):
        for key, value in travelled.items():
            if key in own:
                yield from _compare(value, own[key])
    elif isinstance(travelled, list) and isinstance(own, list | tuple):
        for one, other in zip(travelled, own, strict=False):
            yield from _compare(one, other)
