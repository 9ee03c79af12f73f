"""Changes for the worse that the tests of local tables must notice."""

from mutation import BUS, ORCHESTRATOR, SCHEDULERS, Mutant

_TABLE = f"{BUS}/ruling/local_table.py"
_TABLES = f"{ORCHESTRATOR}/decision/link/local_tables.py"
_RULES = "../schedulers/shipped/test_local_table.py"
_TRIAL = "../oracle/test_tables.py::test_a_table_answers_as_a_linear_evaluation_the_policy_and_the_oracle"
_GATE = "../orchestrator/decision/test_local_tables.py"

_WHEN = "../schedulers/author/test_match_conditions.py"
_CONDITIONS = f"{SCHEDULERS}/author/match_conditions.py"
_POLICY, _NEEDS = f"{SCHEDULERS}/shipped/policy/scheduler.py", f"{SCHEDULERS}/shipped/policy/needs.py"
_ORDER = f"{_RULES}::test_calls_that_a_rule_on_order_does_not_concern_are_answered"
_SHIPPED = f"{_RULES}::test_only_calls_that_concern_a_shipped_scheduler_are_asked"
_WHOLE = f"{_RULES}::test_only_a_tool_that_is_denied_whatever_its_arguments_is_denied_as_a_whole"
_OFFERED = "../orchestrator/loops/test_tools_offered.py"
_COUNTED = "../bus/telemetry/test_metrics.py::test_what_all_agreed_on_counts_as_its_fact_says"

_CHANGES = (
    (
        "calls that a rule on order looks back at are not told to the policy",
        _POLICY,
        '    if "continue" in answers:  # a',
        "    if False:  # a",
        _ORDER,
    ),
    (
        "a rule that allows hides a call from a rule on order",
        _POLICY,
        '        at = answers.index("continue")\n',
        "        at = len(rules)\n",
        _ORDER,
    ),
    (
        "an earlier call is looked for by the conditions of the later one",
        _NEEDS,
        "yield need.tool, CallMatcher(when=need.when)",
        "yield need.tool, CallMatcher(when=self.when)",
        _ORDER,
    ),
    (
        "at_most counts the calls of some agents only",
        _NEEDS,
        "yield self.tools, CallMatcher(when=self.when)",
        "yield from ()",
        _ORDER,
    ),
    (
        "an author's code is given calls that do not concern it",
        _CONDITIONS,
        "        if table.answer(call) is None:\n",
        "        if True:\n",
        f"{_WHEN}::test_each_form_is_given_only_calls_that_concern_it",
    ),
    (
        "a condition on the call passes for one on an argument",
        _CONDITIONS,
        "    for key in sorted(_KEYS.intersection(when)):\n",
        "    for key in ():\n",
        f"{_WHEN}::test_a_wrong_condition_is_refused_by_its_place",
    ),
    (
        "requests to an LLM meet no condition",
        _CONDITIONS,
        'tools: Globs = ("*", ANY)',
        'tools: Globs = ("*",)',
        f"{_WHEN}::test_any_of_several_conditions_is_enough",
    ),
    (
        "a call that meets a condition is skipped",
        _TABLE,
        '**describe_conditions(one), "answer": "ask"}',
        '**describe_conditions(one), "answer": "continue"}',
        f"{_RULES}::test_no_call_that_meets_a_condition_of_when_is_skipped",
    ),
    (
        "a large number becomes its neighbour",
        _TABLE,
        "matcher.model_dump(by_alias=True",
        'matcher.model_dump(mode="json", by_alias=True',
        f"{_RULES}::test_a_table_compares_with_the_number_that_was_written",
    ),
    (
        "a limit counts some of its calls only",
        f"{SCHEDULERS}/shipped/rate_limit.py",
        "for one in config.limits)",
        "for one in config.limits[:1])",
        _SHIPPED,
    ),
    (
        "a route is not asked about its calls",
        f"{SCHEDULERS}/shipped/router/router.py",
        "list_concerns((one.from_, one) for one in config.routes)",
        "list_concerns((one.from_, one) for one in config.routes[:1])",
        _SHIPPED,
    ),
    (
        "a call that needs a person is answered",
        f"{SCHEDULERS}/shipped/approval/config.py",
        '"ask" if rule.action == "ask" else "continue"',
        '"continue"',
        _SHIPPED,
    ),
    (
        "addressees that cannot be seen count as missing",
        f"{SCHEDULERS}/shipped/provenance.py",
        " or not all(map(_NAME.fullmatch, sink.to))",
        "",
        _SHIPPED,
    ),
    (
        "a tool is hidden though some of its calls may run",
        f"{BUS}/ruling/conditions/matching.py",
        "        if named is None or self.when or self.schema_ is not None or self.agent_targets:\n",
        "        if named is None:\n",
        _WHOLE,
    ),
    (
        "a rule that may allow a call does not keep its tool",
        _TABLE,
        '            if truth is not False and rule.answer != "deny":\n',
        '            if truth and rule.answer != "deny":\n',
        _WHOLE,
    ),
    (
        "a tool is offered that is denied to an agent above",
        _TABLE,
        "any(self._denies_all(one) for one in as_each_agent(question))",
        "self._denies_all(question)",
        _WHOLE,
    ),
    (
        "the table of a shadow hides tools",
        f"{ORCHESTRATOR}/decision/tool_offer.py",
        " and name not in audience.shadows",
        "",
        f"{_GATE}::test_a_table_that_does_not_count_leaves_every_tool_offered",
    ),
    (
        "offer_denied keeps nothing",
        f"{ORCHESTRATOR}/decision/gate.py",
        "if client and not config.offer_denied else",
        "if client else",
        f"{_GATE}::test_an_agent_that_keeps_its_tools_is_offered_all",
    ),
    (
        "the first list of tools does not wait for tables",
        f"{ORCHESTRATOR}/decision/gate.py",
        "        await client.tables.settle(self._patience)\n",
        "",
        f"{_GATE}::test_the_first_list_of_tools_waits_for_the_tables",
    ),
    (
        "a loop offers what is denied",
        f"{ORCHESTRATOR}/turn/turn.py",
        "if one.name not in denied] or specs",
        "] or specs",
        f"{_OFFERED}::test_a_tool_whose_every_call_is_denied_is_not_offered_and_never_runs",
    ),
    (
        "the MCP proxy lists what is denied",
        f"{ORCHESTRATOR}/commands/mcp/session.py",
        "zip(listed, names, strict=True) if name not in denied]",
        "zip(listed, names, strict=True)]",
        "../orchestrator/commands/test_mcp_ruled.py::test_a_tool_whose_every_call_is_denied_is_not_listed",
    ),
    (
        "what tables answer is not counted",
        f"{BUS}/telemetry/unanimous.py",
        "self._local[name] += len(times) - len(asked)",
        "self._local[name] += 0",
        _COUNTED,
    ),
    (
        "what tables answer makes a scheduler look quick",
        f"{BUS}/telemetry/fact_metrics.py",
        ' and not is_local(verdict.get("revision")):',
        ":",
        f"{_GATE}::test_what_tables_answer_is_counted_as_the_record_says",
    ),
)

MUTANTS = (
    *(Mutant("local tables", *change) for change in _CHANGES),
    Mutant(
        "local tables",
        "who counts the calls that concern it is not told of one that a table denies",
        _TABLES,
        "        return one is not None and bool(one.digest) and all(table.denies for table in one.tables)\n",
        "        return one is not None and bool(one.digest)\n",
        f"{_GATE}::test_who_says_which_calls_concern_it_learns_of_one_that_a_table_denies",
    ),
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
        "the index leaves out rules that may be about a name",
        _TABLE,
        "if (named := globs.fits(rule.tools, tool)) is not False",
        "if (named := globs.fits(rule.tools, tool))",
        _TRIAL,
    ),
    Mutant(
        "local tables",
        "the index loses the order of rules",
        _TABLE,
        "                for rule in self.rules\n                if (named",
        "                for rule in reversed(self.rules)\n                if (named",
        _TRIAL,
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
        "        if self.digest:\n",
        "        if True:\n",
        f"{_GATE}::test_replicas_that_announce_different_tables_are_asked_about_what_none_denies",
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
        "            if name in answers or name in audience.shadows or not client.tables.may_miss(name)\n",
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
