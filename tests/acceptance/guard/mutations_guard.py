"""Mutations of what a guard promises: calls are ruled on and reported once, nested agents may do no more."""

from mutation import BUS, ORCHESTRATOR, Mutant

_GUARD = f"{ORCHESTRATOR}/guard"

MUTANTS = (
    Mutant(
        "guard",
        "who works for a denied agent has a lineage of its own",
        f"{ORCHESTRATOR}/decision/question/call.py",
        "(*above.names, agent),",
        "(agent,),",
        "test_guard_trees.py::test_what_is_denied_to_the_root_is_denied_three_deep_in_parallel_and_after_a_handoff",
    ),
    Mutant(
        "guard",
        "what an LLM writes to a sub-agent is the user's request",
        f"{_GUARD}/guard.py",
        "if not request or tool_place() is not None:",
        "if not request:",
        "test_user_request.py"
        "::test_a_turn_tells_it_with_its_calls_and_what_an_llm_writes_to_a_sub_agent_is_none",
    ),
    Mutant(
        "guard",
        "who does not ask for the user's request is told it",
        f"{ORCHESTRATOR}/decision/round/open_round.py",
        "self.told_body if name in self.readers else self.body",
        "self.told_body or self.body",
        "test_user_request.py::test_only_who_asks_for_it_is_told_and_no_more_than_may_leave",
    ),
    Mutant(
        "guard",
        "a tool that runs is no place to ask from",
        f"{_GUARD}/callers.py",
        "runs = tool_place()",
        "runs = None",
        "test_guard_trees.py::test_in_threads_that_a_tool_starts_whoever_works_there_works_for_its_agent",
    ),
    Mutant(
        "guard",
        "whom a call's arguments hand work to is not seen",
        f"{ORCHESTRATOR}/decision/question/question.py",
        "        target = target_of(arguments, agents)",
        "        target = None",
        "test_guard_trees.py::test_rules_see_whom_a_call_hands_work_to_and_may_name_another",
    ),
    Mutant(
        "guard",
        "a ruling is reported as often as somebody says so",
        f"{_GUARD}/ruling.py",
        "            self._open.pop()\n",
        "            self._open[-1]\n",
        "test_guard.py::test_a_ruling_is_reported_once_by_whichever_word_comes_first",
    ),
    Mutant(
        "guard",
        "who gives up leaves the question open",
        f"{_GUARD}/gate_thread.py",
        "            self._task.cancel()\n        elif",
        "            pass\n        elif",
        "test_guard.py::test_who_gives_up_withdraws_the_question_and_holds_nothing",
    ),
    Mutant(
        "guard",
        "what a framework raises to leave is nobody to ask",
        f"{_GUARD}/ruling.py",
        "(*passes, AskExit)",
        "()",
        "test_guard.py::test_what_a_framework_raises_to_leave_passes_through_and_the_question_is_withdrawn",
    ),
    Mutant(
        "guard",
        "a program that ends forgets what it reported",
        f"{_GUARD}/guard.py",
        "self._end = weakref.finalize(self, home.close, CLOSE_S)",
        "self._end = None",
        "test_guard_process.py::test_a_program_that_ends_at_once_has_written_what_it_reported",
    ),
    Mutant(
        "guard",
        "lines of the library go to stdout",
        f"{BUS}/telemetry/loggers.py",
        "    return structlog if structlog.is_configured() else None",
        "    return structlog",
        "../bus/telemetry/test_plain_log.py",
    ),
    Mutant(
        "guard",
        "a wish for a tool that nobody named lets the call run",
        f"{_GUARD}/ruling.py",
        'if "tool" in call.can else UnnamedTools((call.tool,))',
        'if "tool" in call.can else (call.tool,)',
        "test_guard.py::test_what_a_caller_cannot_do_with_an_answer_is_a_denial",
    ),
    Mutant(
        "functions",
        "of two functions of one name the one that is found runs",
        f"{_GUARD}/tool_registry.py",
        "            if chosen == tool.name:",
        "            if False:",
        "test_guard_functions.py::test_of_two_functions_of_one_name_each_runs_itself",
    ),
    Mutant(
        "functions",
        "a name that two functions bear means the first of them",
        f"{_GUARD}/tool_registry.py",
        "living[0] if len(living) == 1 and",
        "living[0] if living and",
        "test_guard_functions.py"
        "::test_a_replacement_that_two_living_functions_might_be_is_invalid_and_the_record_says_so",
    ),
    Mutant(
        "functions",
        "a generator has ended when it is returned",
        f"{_GUARD}/streams.py",
        "    if kind in _WHOLE or not _is_stream(kind):",
        "    if True:",
        "test_guard_functions.py"
        "::test_a_pool_of_one_holds_one_generator_at_a_time_until_it_is_exhausted_or_closed",
    ),
    Mutant(
        "functions",
        "a default is not ruled on",
        f"{_GUARD}/tool_function.py",
        "            if name not in found:\n                found[name] = default\n",
        "            pass\n",
        "test_guard_functions.py::test_parameters_that_are_given_by_place_alone_have_names_too",
    ),
    Mutant(
        "functions",
        "an id alone tells whose end it is",
        f"{ORCHESTRATOR}/coding_agents/call_memory.py",
        "if self._bearers.get(bearer) else None",
        "",
        "../../orchestrator/serve/test_serve_hooks.py"
        "::test_a_denied_call_that_bears_another_ones_id_is_not_told_as_run",
    ),
)
