"""Mutations that simulated worlds alone must notice: `make simulate-mutants` tells how long each took."""

from mutation import BUS, ORCHESTRATOR, SCHEDULERS, Mutant

_TESTS = "../simulation/test_simulation.py::test_nothing_breaks_in_many_worlds"
_TABLE_TESTS = "../simulation/test_simulation.py::test_no_call_runs_against_rules_in_force_in_many_worlds"
_TABLES = f"{ORCHESTRATOR}/decision/link/local_tables.py"
_ROUND, _MERGE = f"{BUS}/ruling/round.py", f"{BUS}/ruling/merge.py"
_GATE = f"{ORCHESTRATOR}/decision/gate.py"
_PENDING, _RULES = f"{ORCHESTRATOR}/decision/round/open_round.py", f"{BUS}/ledger/money/rules.py"
_KEEPER, _OUTBOX = f"{BUS}/ledger/money/settlement.py", f"{BUS}/transport/redis/asking/publisher.py"
_EPOCH_RULES = f"{BUS}/ledger/money/epoch_rules.py"
_ANSWERS, _WORKER = f"{BUS}/transport/redis/answering/answer_buffer.py", f"{SCHEDULERS}/worker/worker.py"

_CHANGES = (
    (
        "a denial is outvoted by priority",
        _MERGE,
        "    if denies:\n",
        "    if denies and ranked[0] is denies[0]:\n",
    ),
    ("the lowest priority wins", _MERGE, "return (-heard.priority,", "return (heard.priority,"),
    (
        "silence of a required scheduler lets a call run",
        _ROUND,
        "required_silent=tuple(name for name in silent if self._denies(name)),",
        "required_silent=(),",
    ),
    (
        "a hold lasts from its last renewal",
        _ROUND,
        "holding.since + self._max_hold)",
        "now + self._max_hold)",
    ),
    (
        "a hold that runs out lets a call run",
        _ROUND,
        'self._end(name, "expired")\n                    self._denied = True',
        'self._end(name, "silent")',
    ),
    (
        "a required scheduler that failed has answered",
        _ROUND,
        'elif action == "failed" or (heard.problem and self._denies(name)):',
        'elif action == "failed" and not self._denies(name):',
    ),
    (
        "a signature is not looked at",
        _PENDING,
        "if judge.keyring is not None and not judge.keyring.is_verdict(",
        "if judge.keyring is None and not judge.keyring.is_verdict(",
    ),
    ("a priority has no cap", _PENDING, "capped = cap is not None and priority > cap", "capped = False"),
    (
        "a replacement by a tool that is not there is valid",
        _PENDING,
        "problem = judge.problem(call, asked, scheduler, modify)",
        "problem = None",
    ),
    ("a shadow counts", _PENDING, "shadow = scheduler in audience.shadows", "shadow = False"),
    (
        "anybody may answer",
        f"{ORCHESTRATOR}/decision/link/client.py",
        "if question is None or scheduler not in question.asked:",
        "if question is None:",
    ),
    (
        "a replacement is not verified",
        _GATE,
        "ruling.winner is not None and self.config.verify",
        "ruling.winner is not None and not self.config.verify",
    ),
    (
        "whoever replaces a call verifies it",
        _GATE,
        "self._audience(asked.tool_name).without(ruling.scheduler)",
        "self._audience(asked.tool_name)",
    ),
    ("a person who refuses is not heard", _GATE, 'if answer != "allow":', 'if answer == "expired":'),
    (
        "an outage of the bus lets calls run",
        _GATE,
        "            if self.config.denies_without_bus:\n",
        "            if self.config.denies_without_bus and not audience.names:\n",
    ),
    (
        "an entry is not acknowledged",
        _WORKER,
        "self._bus.acknowledge(entry.id)\n                    if ruler",
        "pass\n                    if ruler",
    ),
    (
        "an author who raises has said continue",
        f"{SCHEDULERS}/worker/answers.py",
        'return Failure(reason=f"it raised {type(error).__name__}")',
        "return Continue()",
    ),
    (
        "a reservation is released again and again",
        _RULES,
        '            record.state = "released"\n',
        "            pass\n",
    ),
    (
        "what is settled stays reserved",
        _RULES,
        'reserved=-share if state == "reserved" else 0,',
        "reserved=0,",
    ),
    (
        "what is reserved may be spent again",
        _RULES,
        "account.limit - total.spent - total.reserved + held",
        "account.limit - total.spent + held",
    ),
    (
        "the amount of a call that is replaced stays reserved",
        _RULES,
        "self._change(place, reserved=-before)",
        "self._change(place, reserved=0)",
    ),
    (
        "a denied call stays reserved",
        _KEEPER,
        'in ("deny", "cancelled") else None',
        'in ("cancelled",) else None',
    ),
    ("nobody pays for the dead", _KEEPER, "one.owner, now) >= GRACE_S", "one.owner, now) > 1e9"),
    (
        "a ledger that was lost goes on",
        _EPOCH_RULES,
        "self.loss, self.lost_by = LedgerLoss(why, now), by",
        "pass",
    ),
    (
        "who knows of a lost ledger reserves all the same",
        _EPOCH_RULES,
        '            return "lost"\n',
        "            return None\n",
    ),
    (
        "a replica does not miss what the ledger forgot",
        _EPOCH_RULES,
        'return "behind" if self.counts.get(writer, 0) < confirmed else None',
        "return None",
    ),
    (
        "what a failover forgot is not written again",
        f"{BUS}/ledger/money/epoch_watch.py",
        "forgotten = memory.list_forgotten()",
        "forgotten = memory.list_forgotten()[:0]",
    ),
    (
        "what was confirmed goes with the process to which it was",
        f"{BUS}/ledger/money/epoch_watch.py",
        "if self._file is not None and memory.id:",
        "if False:",
    ),
    (
        "what is confirmed while the ledger is asked is taken for forgotten",
        f"{BUS}/ledger/money/epoch_watch.py",
        "judgement = memory.judge(seen, now, known)",
        "judgement = memory.judge(seen, now)",
    ),
    (
        "facts under way are lost with a connection",
        _OUTBOX,
        "        self._write_unconfirmed(1)\n",
        "        self._facts._unconfirmed.clear()\n",
    ),
    (
        "two facts have one number",
        f"{ORCHESTRATOR}/decision/recorder.py",
        "seq, at = client.facts + 1, time.time()",
        "seq, at = client.facts, time.time()",
    ),
)

_OF_TABLES = (
    (
        "a table allows for ever",
        _TABLES,
        "return lease.now() - self._bus.seen_at <= lease.LEASE_S",
        "return True",
    ),
    ("one of different tables allows", _TABLES, "        if self.digest:\n", "        if True:\n"),
    (
        "of different tables no denial stands",
        _TABLES,
        "            if 0 < len(digests) <= MAX_DIFFERENT:\n",
        "            if len(found) == 1 and digests:\n",
    ),
    (
        "an old table stays until the new one is read",
        _TABLES,
        "            self._announced = told\n            self._apply()\n",
        "            self._announced = told\n",
    ),
    (
        "what a table denies runs while the bus is away",
        _GATE,
        "            audience = audience.only(self._dispatcher.find_denying(call, audience))\n",
        "            audience = Recipients.NOBODY\n",
    ),
    (
        "rules are in force although a gate has older ones",
        f"{SCHEDULERS}/commands/policy_status.py",
        "        old = tuple(sorted(seen.keys() - current))\n",
        "        old: tuple[str, ...] = ()\n",
    ),
)
MUTANTS = (
    *(Mutant("simulation", name, file, old, new, _TESTS) for name, file, old, new in _CHANGES),
    *(Mutant("simulation", name, file, old, new, _TABLE_TESTS) for name, file, old, new in _OF_TABLES),
)
