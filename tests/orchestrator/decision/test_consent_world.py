"""Every decision of a small world: three schedulers, required or not, and all that each can say in a round.

The rounds are those of the gate: its flow, its judgement of verdicts, its state machine. Only the way to the
schedulers is short: what each says is handed in at once, and time is a number. The law is checked by what was
said alone: whoever is required has agreed to exactly what runs, or nothing runs. Beside it stands a model of
what must run, that knows nothing of `toolgate_bus.ruling`.

What is left out, and why nothing is lost by it: a later round knows of an earlier one only what is asked
about, who wrote it, and whether a person is to be asked. So the second round is tried from one first round
for each of these, and the third from one second round for each tool. Fields are alike but for their names:
the first change of a call is one of `x`. In the third round, which ends as the second, a failure is a
silence, and each hold one that ends in a change.
"""

import itertools
import time
from collections import Counter
from functools import cache

import pytest
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Failure, Hold, Modify, ToolQuestion
from toolgate_bus.ruling.round import Round
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.recipients import Recipients
from toolgate_orchestrator.decision.round.decision_state import DecisionState
from toolgate_orchestrator.decision.round.dispatcher import Dispatcher
from toolgate_orchestrator.decision.round.open_round import OpenRound

pytestmark = pytest.mark.pure

NAMES = ("a", "b", "c")
"""The highest priority first."""
RANK = {"a": 30, "b": 20, "c": 10}
CHANGES = ("x=1", "x=2", "y=1", "other")
KINDS = ("continue", "deny", *CHANGES, "ask", "hold", "hold x=1", "held", "silent", "failed")
"""What one can say: `hold` goes on with a continue or a change, `held` with nothing."""
REQUIRED = [frozenset(who) for count in range(4) for who in itertools.combinations(NAMES, count)]
EACH = [pytest.param(who, marks=() if len(who) == 2 else pytest.mark.system) for who in REQUIRED]
LIKE_OTHERS = ("hold", "failed")
CALL = ("search", (("x", 0), ("y", 0)))
PATIENCE, LONGEST = 10.0, 100.0


@cache
def changed(kind, call):
    """The call that a modify of this kind makes of another; None for what is none."""
    tool, arguments = call
    word = kind.removeprefix("hold ")
    if word == "other":
        return ("other", arguments)
    if "=" in word:
        field, value = word.split("=")
        return (tool, tuple(sorted({**dict(arguments), field: int(value)}.items())))
    return None


# ---------------------------------------------------------------------- the model


def model(required, script, person):
    """What runs by the rules: a call, or None."""
    call, asks = CALL, False
    said = [(name, script["select"][name]) for name in NAMES]
    if refused(said, required):
        return None
    asks = any(kind == "ask" for _, kind in said)
    modifies = [(name, changed(kind, call)) for name, kind in said if changed(kind, call)]
    if modifies:
        author, call = modifies[0]
        said = [(name, script["verify"][name]) for name in NAMES if name != author]
        if refused(said, required):
            return None
        asks = asks or any(kind == "ask" for _, kind in said)
        changes = []
        for name, kind in said:
            wanted = changed(kind, call)
            if wanted in (None, call):
                continue
            if wanted[0] != call[0]:
                if name in required:
                    return None
                continue
            resets = differences(wanted, call) & differences(call, CALL)
            if resets and name not in required and NAMES.index(author) < NAMES.index(name):
                continue
            changes.append(wanted)
        if changes:
            tool, fields = call[0], dict(call[1])
            for wanted in reversed(changes):
                fields |= {field: dict(wanted[1])[field] for field in differences(wanted, call)}
            call = (tool, tuple(sorted(fields.items())))
            said = [(name, script["again"][name]) for name in NAMES]
            if refused(said, required):
                return None
            asks = asks or any(kind == "ask" for _, kind in said)
            if any(name in required and changed(kind, call) not in (None, call) for name, kind in said):
                return None
    return call if person == "allow" or not asks else None


def refused(said, required):
    """Whether a round ends in a denial, whatever else is said in it."""
    return any(
        kind in ("deny", "held") or (kind in ("silent", "failed") and name in required) for name, kind in said
    )


def differences(one, other):
    """The fields in which two calls differ."""
    return {field for field, value in one[1] if dict(other[1])[field] != value}


def agrees(name, call, log):
    """Whether somebody has agreed to exactly this call, by what it said."""
    return any(
        who == name
        and (changed(kind, asked) == call or (asked == call and kind in ("continue", "ask", "hold")))
        for who, asked, kind in log
    )


# ---------------------------------------------------------------------- the gate


@cache
def verdicts_of(kind, call):
    """What one says, in the order in which it says it."""
    first = [Hold(seconds=50)] if kind.startswith("h") else []
    then = changed(kind, call)
    if then is not None:
        return [*first, Modify(tool=then[0], arguments=dict(then[1]))]
    words = {
        "continue": [Continue()],
        "deny": [Deny(reason="no")],
        "ask": [AskUser(prompt="May it?")],
        "hold": [*first, Continue()],
        "held": first,
        "silent": [],
        "failed": [Failure()],
    }
    return words[kind]


class ScriptedDispatcher(Dispatcher):
    """Asks the schedulers of a script, who answer at once."""

    async def dispatch(self, call, asking, audience, local, patience):
        """One round of it."""
        about = (asking.tool_name, tuple(sorted(asking.tool_input.items())))
        kinds = self.script["again" if asking.again else asking.phase]
        round_ = Round(audience.required, patience=PATIENCE, max_hold=LONGEST, now=0.0)
        question = OpenRound(self, call, asking, audience, round_, audience.names, None, 0.0)
        words = [(name, verdicts_of(kinds[name], about)) for name in self.order if name in audience.names]
        first = [(name, one[0]) for name, one in words if one]
        later = [(name, one[1]) for name, one in words if len(one) > 1]
        self.log += [(name, about, kinds[name]) for name in audience.names]
        for now, said in ((1.0, first), (PATIENCE, []), (PATIENCE + 1, later), (LONGEST + 1, [])):
            round_.tick(now)
            for name, one in said:
                if not round_.over:
                    round_.receive(question.judge_verdict(name, one, kinds[name].encode(), now), now)
        closed = round_.close()
        call.heard += closed.heard
        return closed

    def go_on(self, call):
        """Nobody denies after a round here."""

    def on_held(self, question, heard):
        """Nobody is told."""


class GateWorld:
    """The gate among three schedulers; `ruled` says what it lets run."""

    def __init__(self):
        self.person = "allow"
        self.flow = Gate(parse({}), None, self._ask)
        self.asking = ScriptedDispatcher(self.flow.config, None, None, self.flow._redactor, None, None)
        self.flow._dispatcher = self.asking
        self.flow._audience = lambda tool: self.audience

    async def _ask(self, asked, question):
        return self.person

    async def ruled(self, required, script, order, person):
        """What runs, or None; what was overruled, and what each said stays in `log`."""
        self.asking.script, self.asking.order, self.asking.log, self.person = script, order, [], person
        needs = {name: name in required for name in NAMES}
        self.audience = Recipients(NAMES, needs, RANK, frozenset(), frozenset())
        fields = (["search", "other"], 1, "", {}, "", "", None, [], "", 0, "", None, None, {}, False)
        question = ToolQuestion("0" * 32, CALL[0], dict(CALL[1]), *fields)
        call = DecisionState(b"0" * 16, question, ["search", "other"], None, ("search", ""), time.monotonic())
        ruling = await self.flow._rule(call, self.audience, None, self._ask)
        if ruling.outcome == "deny":
            return None
        if ruling.winner is None:
            return CALL
        return (ruling.tool_name, tuple(sorted(ruling.tool_input.items())))


# ---------------------------------------------------------------------- all of it


def scripts_of(phase, before, asked, kinds=KINDS):
    """A script for each thing that those who are asked can say in this round."""
    quiet = dict.fromkeys(NAMES, "continue")
    for said in itertools.product(kinds, repeat=len(asked)):
        told = {**quiet, **dict(zip(asked, said, strict=True))}
        yield {"verify": quiet, "again": quiet, **before, phase: told}


def each_case():
    """Who is required, what everybody says, what a person answers."""
    quiet = dict.fromkeys(NAMES, "continue")
    for script in scripts_of("select", {}, NAMES):
        said = [*script["select"].values()]
        first = next((kind for kind in said if "=" in kind), "x=1")
        if not first.endswith("x=1"):
            continue  # another field or value is the same case by another name
        for person in ("allow", "refuse") if "ask" in said else ("allow",):
            yield script, person
    for author, kind in itertools.product(NAMES, ("x=1", "other")):
        others = [name for name in NAMES if name != author]
        first = {**quiet, author: kind}
        for script in scripts_of("verify", {"select": first}, others):
            yield script, "allow"
    for author, kind in (("b", "x=1"), ("a", "other")):
        before = {"select": {**quiet, author: kind}, "verify": {**quiet, "c": "y=1"}}
        for script in scripts_of("again", before, NAMES, [one for one in KINDS if one not in LIKE_OTHERS]):
            yield script, "allow"


async def try_all(required):
    """The number of cases, and of those in which the call ran; AssertionError at the first that is wrong."""
    world, orders, counted = GateWorld(), [*itertools.permutations(NAMES)], Counter()
    for number, (script, person) in enumerate(each_case()):
        counted["cases"] += 1
        order = orders[(number + len(required)) % len(orders)]
        runs = await world.ruled(required, script, order, person)
        case = (sorted(required), script, order, person)
        if runs is not None:
            counted["ran"] += 1
            missing = [name for name in required if not agrees(name, runs, world.asking.log)]
            assert not missing, (missing, "did not agree to", runs, *case)
            assert not any(kind in ("deny", "held") for _, _, kind in world.asking.log), case
        expected = model(required, script, person)
        assert runs == expected, (runs, "runs, and not", expected, *case)
    return counted


@pytest.mark.parametrize("required", EACH, ids=lambda who: "-".join(sorted(who)) or "nobody")
async def test_whoever_is_required_has_agreed_to_exactly_what_runs_or_nothing_runs(required):
    counted = await try_all(required)
    assert counted["cases"] > 4000
    assert 0 < counted["ran"] < counted["cases"]
