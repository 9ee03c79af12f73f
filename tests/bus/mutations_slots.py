"""Changes for the worse of who has a slot, and whose turn it is."""

from mutation import BUS, ORCHESTRATOR, Mutant

RULES = f"{BUS}/ledger/slots/rules.py"
LINES = f"{BUS}/ledger/slots/lines.py"
GIVING = f"{BUS}/ledger/slots/lua/queue_giving.lua"
SCRIPT = f"{BUS}/ledger/slots/lua/queue.lua"
TURNS = "../bus/queues/test_queue_rules.py"
HISTORIES = "../bus/queues/test_queue_histories.py"
MUTANTS = (
    Mutant(
        "slots",
        "a lease leaks: who is dead gives back what it has before its lease is over",
        SCRIPT,
        "redis.call('ZSCORE', p .. ':held', id)) <= now then",
        "redis.call('ZSCORE', p .. ':held', id)) <= now + lease then",
        HISTORIES,
    ),
    Mutant(
        "slots",
        "a lease leaks in memory",
        RULES,
        "if of.owner in dead and until <= now}",
        "if of.owner in dead}",
        HISTORIES,
    ),
    Mutant(
        "slots",
        "an unfair tag: weights count for nothing",
        LINES,
        "work = seconds / request.weight",
        "work = seconds",
        TURNS,
    ),
    Mutant(
        "slots",
        "what a slot took is not counted, but that it was given",
        LINES,
        "self.charge(request, took - self.has.pop(request.id))",
        "self.has.pop(request.id)",
        TURNS,
    ),
    Mutant(
        "slots",
        "an idle tenant saves its turns up",
        RULES,
        "tag = max(clock.now, clock.ends.pop(one.line, 0.0))",
        "tag = clock.ends.pop(one.line, 0.0)",
        TURNS,
    ),
    Mutant(
        "slots",
        "a wake-up is lost: who needed several pools stands in the way of others for ever",
        RULES,
        "names += [need.pool for need in self.waiting[id_].request.needs if need.pool != name]",
        "pass",
        TURNS,
    ),
    Mutant(
        "slots",
        "a wake-up is lost: what comes back is given to nobody",
        SCRIPT,
        "  return serve(touched, {})\nend",
        "  return {}\nend",
        HISTORIES,
    ),
    Mutant(
        "slots",
        "a writer is let in beside readers",
        GIVING,
        "if need.pool == name then own = true end",
        "if need.pool == name then fits = not need.alone end",
        HISTORIES,
    ),
    Mutant(
        "slots",
        "a tenant's newest call goes first",
        RULES,
        "line.by_age[0][2] if lifted else turn.ids[0][2]",
        "line.by_age[0][2] if lifted else turn.ids[-1][2]",
        TURNS,
    ),
    Mutant(
        "slots",
        "who is moved before another falls behind it once their class is lifted by waiting",
        LINES,
        "aged = min(self.since, other.aged - MOVED)",
        "aged = self.since",
        TURNS,
    ),
    Mutant(
        "slots",
        "the tenant whose turn it is pays for a call that was moved there",
        RULES,
        "            pool.charge(request, pool.estimate)",
        "            pool.charge(request._replace(tenant=one.line), pool.estimate)",
        TURNS,
    ),
    Mutant(
        "slots",
        "on the server, who was moved is charged to the line it stands in",
        GIVING,
        "else note_end(need.pool, r.level, r.line, tonumber(tag)) end",
        "else note_end(need.pool, r.level, r.tenant, tonumber(tag)) end",
        HISTORIES,
    ),
    Mutant(
        "slots",
        "a slot is given before the last denial",
        f"{ORCHESTRATOR}/decision/gate.py",
        'if ruling.outcome != "deny" and ruling.outcome != "ask":',
        "if True:",
        "../orchestrator/decision/test_admission.py",
    ),
    Mutant(
        "slots",
        "what is denied once it has a slot keeps it",
        f"{ORCHESTRATOR}/decision/round/dispatcher.py",
        "        for question in call.take_admitted():\n",
        "        for question in ():\n",
        "../orchestrator/decision/test_admission.py",
    ),
)
