"""The shipped scheduler `approval`: holds a call until a person decides.

    decide ─▶ rule fits? ─▶ approved already? ─▶ keep it at the desk ─▶ hold ···▶ a person answers by
              `toolgate approvals` ─▶ notice ─▶ one replica gives the final answer: continue | deny | modify

A person approves exactly one call, identified by its digest. If another scheduler's modify replaces it, this
scheduler is asked in phase `verify` about the replacement, and asks a person again. Replicas keep no state:
holds, calls and answers are in the store (`queue`), and notices stay until every replica that starts has
read them. The command that answers may die, or lose the server, before it can notify the replicas. So they
also look for answers now and then. If the store cannot be written, a call that needs a person is denied.
"""

import asyncio
from collections.abc import Sequence
from typing import ClassVar, Final

from pydantic import BaseModel
from toolgate_bus.errors import TooFewReplicas, ToolgateError
from toolgate_bus.protocol.events import Continue, Deny, Hold, ToolSelecting, Verdict
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.redis.tasks import keep

from toolgate_schedulers.author.scheduler import SchedulerContext
from toolgate_schedulers.shipped.approval.config import (
    ApprovalConfig,
    ApprovalNeed,
    compile_table,
    find_rule,
    find_rules,
    tools_of,
)
from toolgate_schedulers.shipped.approval.messages import (
    STORE_AWAY,
    make_ask_user,
    not_replicated,
    person,
    verdict_of,
)
from toolgate_schedulers.shipped.approval.queue import (
    LEASE_S,
    ApprovalEvent,
    ApprovalQueue,
    ApprovalStatus,
    approval_of,
    news,
)
from toolgate_schedulers.shipped.approval.records import (
    Approval,
    StandingApproval,
    always_id,
    approval_id,
    digest_of,
)
from toolgate_schedulers.shipped.durability import DURABILITY, count_replicas

WAIT_S: Final = 2.0
AGAIN_S: Final = 0.5
LOOK_AGAIN_S: Final = 2.0
LOOK_LONG_S: Final = 30.0
"""Seconds after an outage during which it looks, every `LOOK_AGAIN_S`, for held calls that are answered
already.

A failover may have lost the verdict or the call, and the command that asked repeats some seconds later.
"""
UNTOLD_S: Final = 10.0
"""Seconds between two looks for answers that nobody was notified of."""
UNTOLD_EACH_S: Final = 0.05
"""Seconds for each waiting call, if their sum is more than `UNTOLD_S`: many calls are looked at less
often."""
MAX_DUE: Final = 10_000
SHARE: Final = 0.5
"""Share of an agent's patience that keeping a call at the desk may take; the rest is for holding it."""
_SHORT: Final = 8
_CALLED: Final = 200
_log = get_logger("toolgate.approval")


class ApprovalScheduler:
    """Scheduler that an `ApprovalConfig` configures."""

    name = "approval"
    priority = 1000
    """Priority above all other shipped schedulers: a call that a person corrected must be the one that
    runs."""
    tools: Sequence[str] = ("*",)
    config_model: ClassVar[type[BaseModel]] = ApprovalConfig

    def __init__(self, config: ApprovalConfig) -> None:
        self.config = config
        self.tools = tools_of(config)
        self.local_table = compile_table(config)
        self.server_replicas = count_replicas(config.durability)
        self._due: dict[str, float] = {}
        """Times to look (again) at the answers that are to be given, by the loop's clock; by approval."""
        self._look_at = self._look_until = float("-inf")
        self._task: asyncio.Task[None] | None = None

    async def decide(self, call: ToolSelecting) -> Verdict:
        """Rule on one call."""
        needs = find_rules(self.config, call)
        if not needs:
            return Continue()
        held = [need for need in needs if need.rule.via == "hold"]
        if not held:
            return make_ask_user(needs[0], call)
        try:
            async with asyncio.timeout(call.ttl_ms / 1000 * SHARE):  # no answer would let the call run
                in_app = next((need for need in needs if need.rule.via == "ask_user"), None)
                return await self._by_a_person(held, call, in_app)
        except TooFewReplicas as error:
            return Deny(reason=not_replicated(error), rule_name=DURABILITY)
        except (ToolgateError, TimeoutError) as error:
            _log.error("a call that needs a person could not be kept", decision=call.id, error=repr(error))
            return Deny(reason=STORE_AWAY)

    async def _by_a_person(
        self, needs: Sequence[ApprovalNeed], call: ToolSelecting, in_app: ApprovalNeed | None
    ) -> Verdict:
        if self._context.shadow:
            return make_ask_user(needs[0], call)  # a shadow holds no call
        standing = None
        for need in needs:  # for its own agent and those above: each must let it pass
            approval = self._make_approval(need, call)
            standing = await self._passes(approval)
            if standing is None:
                break
        answer = await self._desk.kept_answer(approval.id)
        if answer is not None:  # the question came twice: a replica died after it held
            return verdict_of(answer, call)
        if standing is not None and in_app is not None:
            return make_ask_user(in_app, call)  # a standing approval speaks for its own rule alone
        if standing is not None:
            return Continue(reason=f"let pass for this session by {person(standing)} ({standing.rule})")
        if call.phase == "verify":  # perhaps the very same call was approved in select
            first = approval_id(approval.scheduler, call.id, "select", approval.digest)
            agreed = await self._desk.kept_answer(first)
            if agreed is not None and agreed.action == "approve":
                return verdict_of(agreed, call)
        await self._desk.ask(approval)
        how = f"toolgate approvals approve {approval.id[:_SHORT]} (or show, deny, edit)"
        reason = f"a person is asked ({need.called[:_CALLED]}): {how}"
        return Hold(seconds=need.rule.expires_s, reason=reason)

    def _make_approval(self, need: ApprovalNeed, call: ToolSelecting) -> Approval:
        digest = digest_of(call)
        return Approval(
            id=approval_id(self._context.name, call.id, call.phase, digest),
            scheduler=self._context.name,
            digest=digest,
            question=call,
            rule=need.called,
            rule_key=need.key,
            prompt=need.prompt,
            expires_s=need.rule.expires_s,
            always=need.always,
        )

    async def _passes(self, approval: Approval) -> StandingApproval | None:
        if not (approval.always and approval.question.session):
            return None
        for digest in (None, approval.digest):
            standing = await self._desk.passes(always_id(approval, digest))
            if standing is not None:
                return standing
        return None

    async def start(self, context: SchedulerContext) -> None:
        """Begin to listen for answers."""
        self.use(context)
        await self._desk.tell_replicas(context.name)
        self._task = asyncio.create_task(keep(self._listen))

    async def stop(self) -> None:
        """Stop listening; a peer gives later answers, or this replica after its next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def use(self, context: SchedulerContext) -> None:
        """Keep calls and answers in the context's store; `start` calls this."""
        self._context = context
        durability = self.config.durability.value if self.config.durability is not None else None
        self._desk = ApprovalQueue(context.shared.store, context.shared.notices, durability=durability)

    async def _listen(self) -> None:
        after = "0-0"
        while True:
            try:
                now = asyncio.get_running_loop().time()
                if self._look_at <= now < self._look_until:
                    self._look_at = now + LOOK_AGAIN_S
                    await self._look_through_held()
                wait = min([WAIT_S, *(max(0.0, due - now) for due in self._due.values())])
                for notice in await self._desk.news(after, wait):
                    after = notice.id
                    if (said := news(notice)) is not None:
                        self._note(said)
                await self.give_due()
            except ToolgateError as error:
                _log.info("approvals wait for the bus", error=str(error))
                self._look_until = asyncio.get_running_loop().time() + LOOK_LONG_S
                await asyncio.sleep(AGAIN_S)

    async def _look_through_held(self) -> None:
        """Look for answers to all held calls, and keep calls again that the desk has lost.

        A call is kept before it is held: the server may have failed over between the two.
        """
        held = await self._read_held()
        self._due = dict.fromkeys(held, 0.0) | self._due
        for id_ in await self._desk.find_forgotten(held):
            need = find_rule(self.config, held[id_])
            if need is not None:
                await self._desk.ask(self._make_approval(need, held[id_]))

    def _note(self, said: ApprovalEvent) -> None:
        """Schedule a look at the approval that a notice names."""
        if said.kind == "answered":
            self._due[said.approval] = 0.0
        elif said.scheduler == self._context.name and len(self._due) < MAX_DUE:
            self._due.setdefault(said.approval, asyncio.get_running_loop().time() + UNTOLD_S)

    async def give_due(self) -> None:
        """Give the answers that are due; look again later at those that other replicas are giving."""
        now = asyncio.get_running_loop().time()
        for id_ in [id_ for id_, due in self._due.items() if due <= now]:
            try:
                again = await self.give(id_)
            except ToolgateError:
                raise
            except Exception as error:  # noqa: BLE001 - people wait for the other answers
                _log.error("an answer could not be given; trying again", approval=id_, exc_info=error)
                again = LEASE_S
            if again is None:
                del self._due[id_]
            else:
                self._due[id_] = now + again

    async def give(self, id_: str) -> float | None:
        """Give one answer; return the seconds until the next look, or None if nothing is left to do."""
        approval = await self._desk.approval(id_)
        if approval is not None and approval.scheduler != self._context.name:
            return None
        decision = approval.question.id if approval is not None else None
        # A failover may have kept the status and lost the verdict: then the call is held again.
        if await self._desk.get_status(id_) is not None and id_ not in await self._read_held(decision):
            return None
        try:
            answer = await self._desk.kept_answer(id_)
        except TooFewReplicas as error:
            _log.warning("an answer waits for replicas", approval=id_, error=str(error))
            return AGAIN_S
        if answer is None:
            waits = approval is not None and await self._desk.is_held(approval)
            return max(UNTOLD_S, len(self._due) * UNTOLD_EACH_S) if waits else None
        claimed = await self._desk.claim(id_, self._context.replica)
        if claimed is None:
            return LEASE_S
        held = await self._read_held(decision or answer.decision)
        question = held.get(id_)
        if question is None:
            changed = any(one.id == answer.decision for one in held.values())
            # A replica may have given it and died before it could record that: the decision tells.
            gone: ApprovalStatus = "given" if claimed == "again" else "gone"
            await self._desk.close(id_, "changed" if changed else gone)
            return None
        _log.info("a person answered", decision=question.id, action=answer.action, by=answer.by)
        verdict = verdict_of(answer, question)
        given = await self._context.holds.answer(question.id, verdict, question.phase, again=question.again)
        await self._desk.close(id_, "given" if given else "gone")
        return None

    async def _read_held(self, decision: str | None = None) -> dict[str, ToolSelecting]:
        """Return the held calls, or those of one decision, by the ids of their approvals."""
        name = self._context.name
        return {approval_of(name, one).id: one.question for one in await self._context.holds.open(decision)}
