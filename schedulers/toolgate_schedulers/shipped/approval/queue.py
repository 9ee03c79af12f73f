"""Keep the desk in the shared store, where calls wait and people answer.

    approval:at:SCHEDULER      there is a scheduler of this name that holds calls for people
    approval:asked:ID          a call that needs a person, with the words of its rule
    approval:answer:ID         what the first person said about it: written once
    approval:claim:ID          a replica is giving this answer; `approval:tried:ID` says that one did before
    approval:became:ID         given, changed (another call waits in its place) or gone (nobody waits)
    approval:always:ID         later calls of a session that pass without asking

The worker keeps the holds themselves (`holds`): a call waits as long as its hold exists. Every entry is
read by its id, so no replica searches the store; only the commands list entries. A client that may write
these keys may answer: the signatures between schedulers and orchestrators do not cover them.
"""

import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, Literal, NamedTuple

import anyio
from toolgate_bus.errors import CodecError, Refusal, TransportError
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import Failure, Verdict
from toolgate_bus.state.notifications import KEPT_S, Notice, Notices
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Durability, Store

from toolgate_schedulers.author.scheduler import HeldQuestion
from toolgate_schedulers.shipped.approval.records import (
    Approval,
    ApprovalAnswer,
    StandingApproval,
    approval_id,
    digest_of,
    pack_record,
    unpack_record,
)
from toolgate_schedulers.shipped.durability import tell_replicas
from toolgate_schedulers.worker.holds import ReplyTo, StoredHolds

TOPIC: Final = "approvals"
ALWAYS_S: Final = 86_400.0
LEASE_S: Final = 5.0
"""Seconds that a replica has to give an answer before another one does."""

MISSED_S: Final = 3.0
"""Seconds that a heartbeat may be missed: an agent whose event loop is blocked is not gone."""
LOOK_S: Final = 0.2
Alive = Callable[[], Awaitable[Collection[str]]]
"""Function that returns the orchestrators that are alive."""

ApprovalStatus = Literal["given", "changed", "gone"]
_log = get_logger("toolgate.approval")
_BECAME: Final[dict[bytes, ApprovalStatus]] = {b"given": "given", b"changed": "changed", b"gone": "gone"}


class WaitingCall(NamedTuple):
    """Call that waits for a person now."""

    approval: Approval
    seconds_left: float
    orchestrator: str = ""
    """Orchestrator of the agent that asked."""
    gone: bool = False
    """True if that orchestrator's heartbeat has stopped, so that nobody waits for the answer."""


class ApprovalEvent(NamedTuple):
    """Notice that something happened at the desk."""

    kind: str
    """`asked` or `answered`."""
    scheduler: str
    approval: str


class ApprovalQueue:
    """Approvals of one namespace."""

    def __init__(
        self,
        store: Store,
        notices: Notices,
        alive: Alive | None = None,
        durability: Durability | None = None,
    ) -> None:
        """Keep the approvals in `store`.

        `alive` returns the orchestrators that are alive; without it, all count as alive. With `durability`,
        `ask` and `kept_answer` raise TooFewReplicas unless enough replicas have the write.
        """
        self._store, self._notices, self._alive = store, notices, alive
        self._durable = (
            None if durability is None else store.make_durable(durability, "approvals", "approval:durable")
        )
        self._gone: frozenset[str] = frozenset()

    # ------------------------------------------------------------------ asking

    async def ask(self, approval: Approval) -> None:
        """Keep a call that is about to be held; a repetition changes nothing."""
        await self._store.put(f"approval:at:{approval.scheduler}", b"", KEPT_S)
        kept = self._durable or self._store
        await kept.put(f"approval:asked:{approval.id}", pack_record(approval), KEPT_S)
        await self._notices.publish(TOPIC, packing.pack(("asked", approval.scheduler, approval.id)))

    async def is_held(self, approval: Approval) -> bool:
        """Return whether this very call is held now."""
        holds = StoredHolds(self._store, approval.scheduler, _never)
        question = approval.question
        return await holds.is_kept(question.id, question.phase, again=question.again)

    async def approval(self, id_: str) -> Approval | None:
        """Return the call of this id that waits or waited."""
        return unpack_record(Approval, await self._store.get(f"approval:asked:{id_}"))

    async def find_forgotten(self, ids: Collection[str]) -> list[str]:
        """Return the ids that are not kept here."""
        asked = await self._store.read_many([f"approval:asked:{id_}" for id_ in ids])
        return [id_ for id_, (raw, _) in zip(ids, asked, strict=True) if raw is None]

    async def list_waiting(self) -> list[WaitingCall]:
        """List the calls that wait for an answer now, the soonest to expire first."""
        return [one for one in await self.list_held() if not one.gone]

    async def list_held(self) -> list[WaitingCall]:
        """List all held calls, including those whose agent is gone."""
        found: list[WaitingCall] = []
        for key in await self._store.keys("approval:at:"):
            scheduler = key.removeprefix("approval:at:")
            waiting = await StoredHolds(self._store, scheduler, _never).open()
            bare = [approval_of(scheduler, held) for held in waiting]
            asked = await self._store.read_many([f"approval:asked:{one.id}" for one in bare])
            for held, one, (raw, _) in zip(waiting, bare, asked, strict=True):
                approval = unpack_record(Approval, raw) or one
                found.append(WaitingCall(approval, held.seconds_left, held.orchestrator))
        gone = await self.find_gone({one.orchestrator for one in found})
        marked = [one._replace(gone=one.orchestrator in gone) for one in found]
        return sorted(marked, key=lambda one: (one.seconds_left, one.approval.id))

    async def find_gone(self, orchestrators: Collection[str]) -> frozenset[str]:
        """Return the orchestrators that are not alive; one that has just vanished is looked for for a
        while."""
        if self._alive is None or not orchestrators:
            return frozenset()
        missing: frozenset[str] = frozenset()
        with anyio.move_on_after(MISSED_S):
            while True:
                missing = frozenset(orchestrators) - frozenset(await self._alive())
                if missing <= self._gone:
                    break
                await anyio.sleep(LOOK_S)
        self._gone = missing
        return missing

    async def find_ids(self, prefix: str) -> list[str]:
        """List the ids with this prefix of all calls that wait or waited."""
        keys = await self._store.keys(f"approval:asked:{prefix}")
        return [key.removeprefix("approval:asked:") for key in keys]

    # ------------------------------------------------------------------ answering

    async def answer(
        self, approval: Approval, answer: ApprovalAnswer, standing: StandingApproval | None = None
    ) -> ApprovalAnswer:
        """Answer a call unless it is answered already; return the answer that counts, and notify the
        schedulers.

        `standing` also lets later calls pass. It is kept before the answer is visible: another scheduler may
        change this call as soon as it goes on, and then it is asked about once more. Schedulers that cannot
        be notified find the answer themselves a little later.
        """
        key = f"approval:answer:{approval.id}"
        passed = standing is None or await self.passes(standing.id) is not None
        try:
            if standing is not None:
                await self.let_pass(standing)
            await self._store.add(key, pack_record(answer), KEPT_S)
            counts = await self.answer_to(approval.id)
            if standing is not None and counts != answer and not passed:
                await self.revoke(standing.id)
        except TransportError as error:  # it may have been written: answering again tells
            raise type(error)(f"the answer may not have been stored ({error}): answer again") from None
        if counts is None:
            raise TransportError("the answer was not stored: answer again")
        try:
            await self._notices.publish(TOPIC, packing.pack(("answered", approval.scheduler, approval.id)))
        except Refusal:
            raise
        except TransportError as error:
            _log.info("the schedulers could not be told of an answer", approval=approval.id, error=str(error))
        return counts

    async def answer_to(self, id_: str) -> ApprovalAnswer | None:
        """Return the answer to this approval, if there is one."""
        return unpack_record(ApprovalAnswer, await self._store.get(f"approval:answer:{id_}"))

    async def tell_replicas(self, scheduler: str) -> None:
        """Log a warning if too few replicas follow; raise Refusal if the server forbids waiting for them."""
        if self._durable is not None:
            await tell_replicas(scheduler, self._durable)

    async def kept_answer(self, id_: str) -> ApprovalAnswer | None:
        """Return the answer once enough replicas have it.

        The command that answered wrote it to the primary only. If the primary has lost it since, this writes
        it again.
        """
        answer = await self.answer_to(id_)
        if answer is None or self._durable is None:
            return answer
        added = await self._durable.add(f"approval:answer:{id_}", pack_record(answer), KEPT_S)
        return answer if added else await self.answer_to(id_)

    async def claim(self, id_: str, replica: str) -> Literal["first", "again"] | None:
        """Claim the right to give an answer for `LEASE_S` seconds; None if another replica has it.

        `again`: a replica had it before and did not record the end, so the answer may have been given.
        """
        if not await self._store.add(f"approval:claim:{id_}", replica.encode(), LEASE_S):
            return None
        first = await self._store.add(f"approval:tried:{id_}", replica.encode(), KEPT_S)
        return "first" if first else "again"

    async def close(self, id_: str, became: ApprovalStatus) -> None:
        """Record what became of an answer. The first record counts, as a late replica knows less."""
        await self._store.add(f"approval:became:{id_}", became.encode(), KEPT_S)

    async def get_status(self, id_: str) -> ApprovalStatus | None:
        """Return what became of an answer; None if it was not given yet."""
        raw = await self._store.get(f"approval:became:{id_}")
        return _BECAME.get(raw) if raw is not None else None

    # ------------------------------------------------------------------ always for this session

    async def let_pass(self, standing: StandingApproval) -> None:
        """Let later calls pass for a day."""
        await self._store.put(f"approval:always:{standing.id}", pack_record(standing), ALWAYS_S)

    async def passes(self, id_: str) -> StandingApproval | None:
        """Return the standing approval of this id, if there is one."""
        return unpack_record(StandingApproval, await self._store.get(f"approval:always:{id_}"))

    async def list_standing(self) -> list[tuple[StandingApproval, float]]:
        """List the standing approvals, each with the seconds that it still holds."""
        found = []
        for key in await self._store.keys("approval:always:"):
            one, left = (
                unpack_record(StandingApproval, await self._store.get(key)),
                await self._store.seconds_left(key),
            )
            if one is not None and left is not None:
                found.append((one, ALWAYS_S if math.isinf(left) else left))
        return found

    async def revoke(self, id_: str) -> bool:
        """Remove a standing approval, so that its calls are asked about again; False if there was none."""
        return await self._store.delete(f"approval:always:{id_}")

    # ------------------------------------------------------------------ news

    async def news(self, after: str, wait_s: float) -> Sequence[Notice]:
        """Read the notices after an entry; wait if there are none. `news` decodes one."""
        return await self._notices.read(TOPIC, after, wait_s)


def approval_of(scheduler: str, held: HeldQuestion) -> Approval:
    """Return the approval of a held question, without the words of the rule that asked."""
    call_digest = digest_of(held.question)
    id_ = approval_id(scheduler, held.decision_id, held.question.phase, call_digest)
    return Approval(id=id_, scheduler=scheduler, digest=call_digest, question=held.question)


def news(notice: Notice) -> ApprovalEvent | None:
    """Decode a notice; None if it has another form."""
    try:
        said = packing.unpack(notice.body, 1024)
    except CodecError:
        return None
    if not (isinstance(said, list) and len(said) == 3 and all(isinstance(word, str) for word in said)):
        return None
    return ApprovalEvent(*said)


async def _never(_asked: ReplyTo, _verdict: Verdict | Failure) -> None:
    raise AssertionError("only a worker gives final answers")
