"""Changes for the worse that the tests of what is said where nobody rules must notice."""

from mutation import ORCHESTRATOR, Mutant

_GATE, _TESTS = f"{ORCHESTRATOR}/decision", "../orchestrator/decision"

_OVERLOAD = f"{ORCHESTRATOR}/decision/round/overload.py"
_OVERLOADED = "../orchestrator/decision/test_overload.py"
MUTANTS = (
    Mutant(
        "overload",
        "an overloaded scheduler is asked all the same",
        _OVERLOAD,
        "if limit is not None and len(limit.in_flight) >= limit.size:",
        "if limit is None and name in self.limits:",
        f"{_OVERLOADED}::test_a_required_scheduler_that_is_overloaded_denies_at_once_what_it_cannot_answer",
    ),
    Mutant(
        "overload",
        "late answers shrink nothing",
        _OVERLOAD,
        "            self.size = max(float(MIN_IN_FLIGHT), self.size * SHRINKS_TO)\n",
        "            pass\n",
        f"{_OVERLOADED}::test_of_many_times_the_load_as_much_is_answered_as_can_be_and_in_time",
    ),
    Mutant(
        "overload",
        "one silence is an overload",
        _OVERLOAD,
        "        if count + 1 < MIN_SILENCES or",
        "        if",
        f"{_OVERLOADED}::test_a_few_silences_are_no_overload_and_it_ends_once_nothing_is_above_the_bound",
    ),
    Mutant(
        "unruled",
        "calls that nobody rules on run without a word",
        f"{_GATE}/gate.py",
        "                if not self.vacancy.is_told:\n",
        "                if False:\n",
        f"{_TESTS}/test_vacancy.py"
        "::test_without_a_server_calls_run_and_one_line_says_where_was_looked_and_what_to_start",
    ),
    Mutant(
        "unruled",
        "a denial for want of a server does not say how to start who is required",
        f"{_GATE}/vacancy.py",
        '    return f"start {',
        '    return f"begin {',
        f"{_TESTS}/test_vacancy.py"
        "::test_without_a_server_a_required_scheduler_denies_and_line_and_denial_say_how_to_start_it",
    ),
    Mutant(
        "unruled",
        "a line is said with each gate",
        f"{_GATE}/vacancy.py",
        "    if key not in _told and",
        "    if",
        "test_nobody_answers.py"
        "::test_a_program_without_a_server_has_one_line_for_what_runs_and_one_for_what_is_denied",
    ),
    Mutant(
        "unruled",
        "a required scheduler that raises is not named",
        f"{_GATE}/gate.py",
        "            if heard.scheduler in required and",
        "            if False and",
        f"{_TESTS}/test_absence.py"
        "::test_a_required_scheduler_that_raises_is_named_in_the_log_once_and_its_error_not_to_the_llm",
    ),
    Mutant(
        "unruled",
        "an optional scheduler that raises is not named",
        f"{_GATE}/round/dispatcher.py",
        '                    if reason == "failed":\n',
        "                    if False:\n",
        f"{_TESTS}/test_absence.py"
        "::test_an_optional_scheduler_that_raises_is_named_once_with_the_class_of_its_error",
    ),
    Mutant(
        "unruled",
        "what hooks deny is told as calls without rulings",
        f"{ORCHESTRATOR}/commands/run/opening.py",
        ".handlers(TOOL_SELECTING, besides=OBSERVERS) == 0",
        ".handlers(TOOL_SELECTING, besides=OBSERVERS) is not None",
        "test_nobody_answers.py::test_what_hooks_of_the_session_deny_is_no_call_without_rulings",
    ),
    Mutant(
        "unruled",
        "a misplaced key of a plan is read by nobody, in silence",
        f"{ORCHESTRATOR}/decision/misplaced.py",
        "        if key in KEYS:\n",
        "        if False:\n",
        "../orchestrator/commands/test_plan_reading.py",
    ),
    Mutant(
        "unruled",
        "a tool that no turn calls is run unasked",
        f"{ORCHESTRATOR}/modules/direct_calls.py",
        "                return await self._rule(name, arguments)\n",
        "                return await _finish(own(arguments, *more, **named))\n",
        "test_bundle_gated.py::test_a_tool_that_no_turn_calls_is_ruled_on_as_well",
    ),
    Mutant(
        "unruled",
        "the user of a hook is told with each call",
        f"{ORCHESTRATOR}/commands/serve/hook_handler.py",
        "        if not line or event.session in self._informed:\n",
        "        if not line:\n",
        "../orchestrator/serve/test_serve_hooks.py"
        "::test_a_call_that_nobody_rules_on_is_told_to_the_user_once_a_session_where_the_client_can[claude]",
    ),
    Mutant(
        "unruled",
        "run ends well where the LLM could not be asked",
        f"{ORCHESTRATOR}/commands/run/cli.py",
        " or ended.is_refused:",
        ":",
        "test_nobody_answers.py::test_run_and_a_script_of_chat_end_with_1_where_a_request_to_the_llm_was_denied",
    ),
)
