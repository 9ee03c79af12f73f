"""Mutations of `policy`'s rules on what came before a call, and of what has such a call wait."""

from mutation import SCHEDULERS, Mutant

_HISTORY = f"{SCHEDULERS}/shipped/policy/order.py"
_KEEPER, _VERDICTS = f"{SCHEDULERS}/shipped/policy/keeper.py", f"{SCHEDULERS}/shipped/policy/verdicts.py"
_PROGRESS = f"{SCHEDULERS}/shipped/policy/progress.py"
_PURE = "../schedulers/shipped/test_policy_order.py"
_TRIAL = "../schedulers/shipped/test_policy_ordered.py"
_GATE = "../orchestrator/decision/test_gate.py"
_NEEDS = f"{_PURE}::test_a_need_is_met_under_way_or_unmet"
_ENDS = f"{_TRIAL}::test_who_waits_is_told_when_its_producer_ends_fails_or_is_denied"
_RULED = f"{_TRIAL}::test_what_is_written_a_moment_after_a_question_counts"
_COUNTED = f"{_PURE}::test_calls_that_ran_or_run_are_counted_and_denied_ones_are_not"

_CHANGES = (
    ("a denied call counts", _HISTORY, 'fact.get("final_tool"), str', 'fact.get("tool_name"), str', _COUNTED),
    (
        "how a call ended does not matter",
        _HISTORY,
        "if in_time and need.success in (None, run.success) and",
        "if in_time and",
        _NEEDS,
    ),
    (
        "what another session did counts",
        _HISTORY,
        'yield "session", session',
        'yield "session", root',
        _NEEDS,
    ),
    ("what came long ago counts", _HISTORY, "now - run.at <= need.within_s", "True", _NEEDS),
    (
        "what is still told is not waited for",
        _KEEPER,
        "        await asyncio.sleep(SETTLE_S)\n",
        "",
        _RULED,
    ),
    (
        "a reader that lags is not waited for",
        _PROGRESS,
        "        return self._caught_up >= written\n",
        "        return True\n",
        "../schedulers/shipped/test_policy_ordered.py",
    ),
    (
        "who comes after a rest waits for a read that takes its time",
        _PROGRESS,
        "if self.is_long and",
        "if False and",
        f"{_TRIAL}::test_who_comes_after_a_rest_does_not_wait_for_a_read_that_takes_its_time",
    ),
    (
        "a part of what is written by now is taken for all of it",
        _PROGRESS,
        "if many < FULL_PAGE and self._facts.is_whole:",
        "if True:",
        f"{_TRIAL}::test_while_the_facts_of_a_shard_cannot_be_read_nothing_passes_that_may_not_follow",
    ),
    ("who waits is not told", _KEEPER, "        if touched:\n", "        if not touched:\n", _ENDS),
    (
        "what peers are asked about is not looked for",
        _KEEPER,
        "in await self._notes.find(call):",
        "in ():",
        "test_policy_order.py::test_a_call_waits_for_one_of_its_response_that_another_replica_was_asked_about",
    ),
    (
        "what another replica decides does not count",
        f"{SCHEDULERS}/shipped/policy/claims.py",
        "{who for who, _ in before})",
        "set())",
        f"{_TRIAL}::test_of_many_that_two_replicas_are_asked_at_once_no_more_run_than_may",
    ),
    (
        "who comes first counts who comes later",
        "bus/toolgate_bus/state/lua/claim_place.lua",
        "if one[1] < own then",
        "if one[1] > own then",
        "../bus/state/test_claims.py::test_the_script_and_the_rules_say_the_same",
    ),
    (
        "the first facts of a new agent wait for the read of the others",
        _KEEPER,
        "            self._begin(self._meet(orchestrator))\n",
        "",
        f"{_TRIAL}::test_the_first_facts_of_an_agent_that_is_new_are_heard_while_others_are_waited_for",
    ),
    (
        "who does not require slots is not told of",
        "bus/toolgate_bus/fleet/roster.py",
        "if name not in required)",
        "if name in required)",
        "../doctor/test_doctor_judges.py::test_who_gives_what_is_scarce_and_is_not_required_is_told_with_who_does_not_require_it",
    ),
    (
        "who waits for a moment is held at once",
        _KEEPER,
        "self._soon >= MAX_SOON",
        "self._soon >= 0",
        f"{_TRIAL}::test_what_ends_in_a_moment_is_waited_for_and_nothing_is_said_or_stored",
    ),
    (
        "who waits for a moment is never given back its place",
        _KEEPER,
        "        self._soon -= 1\n",
        "",
        f"{_TRIAL}::test_of_many_that_wait_for_a_moment_the_last_are_held_at_once",
    ),
    (
        "an end that another may wait for is told later",
        "orchestrator/toolgate_orchestrator/decision/recorder.py",
        "if frees or table.held or (",
        "if frees or (False and ",
        f"{_GATE}::test_an_end_that_another_call_of_its_response_may_wait_for_is_told_at_once",
    ),
    (
        "calls in flight leave one after another",
        "orchestrator/toolgate_orchestrator/decision/gate.py",
        "if not is_up or not audience.names:",
        "if True:",
        f"{_GATE}::test_calls_that_come_together_are_asked_about_together",
    ),
    (
        "a call beside one that it may not follow runs",
        _VERDICTS,
        'if state != "unmet":',
        'if state == "met":',
        _RULED,
    ),
)
MUTANTS = tuple(Mutant("order", *change) for change in _CHANGES)
