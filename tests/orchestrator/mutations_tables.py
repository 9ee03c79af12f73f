"""Changes for the worse that the tests of local tables must notice."""

from mutation import BUS, ORCHESTRATOR, Mutant

_TABLE = f"{BUS}/ruling/local_table.py"
_TABLES = f"{ORCHESTRATOR}/decision/link/local_tables.py"
_RULES = "../schedulers/shipped/test_local_table.py"
_GATE = "../orchestrator/decision/test_local_tables.py"

MUTANTS = (
    Mutant(
        "local tables",
        "what a rule cannot see is answered",
        _TABLE,
        'return rule.explain(tool) if truth and rule.answer != "ask" else None',
        'return rule.explain(tool) if rule.answer != "ask" else None',
        f"{_RULES}::test_what_is_certain_is_answered_and_the_rest_is_asked",
    ),
    Mutant(
        "local tables",
        "one element of a list is enough to allow",
        _TABLE,
        '"all" if self.answer == "continue" else "any"',
        '"any"',
        f"{_RULES}::test_what_is_certain_is_answered_and_the_rest_is_asked",
    ),
    Mutant(
        "local tables",
        "rules on agents above are not looked at",
        _TABLE,
        "        if not question.lineage:\n",
        "        if True:\n",
        f"{_RULES}::test_a_call_of_an_agent_is_one_of_each_agent_above_it",
    ),
    Mutant(
        "local tables",
        "the index forgets globs",
        _TABLE,
        "if (named := globs.fits(rule.tools, tool)) is not False",
        "if (named := tool in rule.tools)",
        f"{_RULES}::test_what_is_certain_is_answered_and_the_rest_is_asked",
    ),
    Mutant(
        "local tables",
        "an old heartbeat counts for ever",
        _TABLES,
        "        return lease.now() - self._bus.seen_at <= lease.LEASE_S\n",
        "        return True\n",
        f"{_GATE}::test_a_continue_counts_as_long_as_the_heartbeats_and_a_denial_longer",
    ),
    Mutant(
        "local tables",
        "one of several tables counts",
        _TABLES,
        "            if len(digests) == 1 and (digest := digests.pop()):\n",
        "            if digest := digests.pop():\n",
        f"{_GATE}::test_replicas_that_announce_different_tables_are_asked",
    ),
    Mutant(
        "local tables",
        "any bytes are the table",
        _TABLES,
        "hashlib.sha256(raw).hexdigest() != digest",
        "False",
        f"{_GATE}::test_a_table_that_is_not_as_announced_is_refused_and_its_scheduler_asked",
    ),
    Mutant(
        "local tables",
        "a table sees what was hidden",
        f"{ORCHESTRATOR}/decision/round/dispatcher.py",
        "        return body, asking if outgoing is None else None\n",
        "        return body, asking\n",
        f"{_GATE}::test_a_table_sees_what_its_scheduler_would_be_sent",
    ),
    Mutant(
        "local tables",
        "who counts calls is not told of one that a table denies",
        f"{ORCHESTRATOR}/decision/round/dispatcher.py",
        "            if name in answers or name in audience.shadows or not client.tables.has_one(name)\n",
        "            if name in answers\n",
        f"{_GATE}::test_of_a_call_that_a_table_denies_only_those_without_a_table_learn",
    ),
    Mutant(
        "local tables",
        "prepared conditions take a placeholder for a text",
        f"{BUS}/ruling/conditions/when_matcher.py",
        "                and MARK not in value\n",
        "",
        "../bus/ruling/conditions/test_conditions.py::test_prepared_conditions_find_the_same",
    ),
    Mutant(
        "local tables",
        "while the bus is away nothing is denied",
        f"{ORCHESTRATOR}/decision/gate.py",
        "            audience = audience.only(self._dispatcher.find_denying(call, audience))\n",
        "            audience = Recipients.NOBODY\n",
        f"{_GATE}::test_while_the_bus_is_away_what_the_table_denies_is_denied",
    ),
)
