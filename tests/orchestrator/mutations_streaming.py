"""Changes for the worse that the tests of steering, goals, budgets and checkpoints must notice."""

from mutation import ORCHESTRATOR, Mutant

_TURN = f"{ORCHESTRATOR}/turn"
_TESTS = "../orchestrator/turn"


def _mutant(name: str, file: str, old: str, new: str, test: str) -> Mutant:
    return Mutant("streaming", name, f"{_TURN}/{file}", old, new, f"{_TESTS}/{test}")


MUTANTS = (
    _mutant(
        "the last text of the user is told first",
        "hooks/steering.py",
        "self._texts.pop(0)",
        "self._texts.pop()",
        "test_steering.py::test_text_given_while_a_tool_runs_is_in_the_next_request_in_order_and_once",
    ),
    _mutant(
        "text given with the last answer is lost",
        "turn.py",
        "                    if not steering.has_pending:\n",
        "                    if True:\n",
        "test_steering.py::test_text_given_with_the_last_answer_keeps_the_turn_going",
    ),
    _mutant(
        "the last request of a turn thinks less",
        "llm/request.py",
        "            request.reasoning_effort = self._effort\n",
        "            request.reasoning_effort = None if tool_choice == 'none' else self._effort\n",
        "test_loop_keys.py::test_reasoning_effort_is_on_each_request_the_last_one_too",
    ),
    _mutant(
        "a goal that is stuck is pursued for ever",
        "goals/pursuit.py",
        '        if verdict in LOCKS and (goal["escalated"] or is_last):\n',
        "        if False:\n",
        "test_goals.py::test_a_run_that_is_stuck_is_warned_once_and_then_ended_with_a_summary",
    ),
    _mutant(
        "a judge that fails finds the goal reached",
        "goals/pursuit.py",
        '            return self._end(goal, "error", reason=str(error), summary=summary)\n',
        '            return self._end(goal, "achieved", reason=str(error), summary=summary)\n',
        "test_goals.py::test_a_judge_that_fails_ends_the_run_and_nothing_was_reached",
    ),
    _mutant(
        "a goal has no end of its own",
        "goals/rules.py",
        "isinstance(cap, bool) and cap > 0 else MAX_TURNS",
        "isinstance(cap, bool) and cap > 0 else 10**9",
        "test_goal_rules.py::test_a_goal_without_a_cap_of_its_own_is_bounded_all_the_same",
    ),
    _mutant(
        "a leg without requests left counts as done",
        "leg_budget.py",
        'return BUDGET_EXHAUSTED if self.is_delegated else "incomplete"',
        'return "success"',
        "test_leg_budget.py::test_a_sub_agent_that_used_its_requests_up_ends_as_budget_exhausted",
    ),
    _mutant(
        "what could not be saved is gone on with",
        "turn.py",
        "        if done is False:\n",
        "        if done is False and False:\n",
        "test_checkpoint.py::test_what_could_not_be_saved_ends_the_turn_before_another_request",
    ),
    _mutant(
        "a history goes from one vendor to another",
        "llm/provider_pin.py",
        "        if mine == theirs:\n",
        "        if mine or theirs:\n",
        "test_provider_pin.py::test_what_cannot_be_pinned_is_said_and_leaves_the_pin_as_it_is",
    ),
    _mutant(
        "a sequence goes on behind a call that failed",
        "calls/order.py",
        "        if is_strict and ",
        "        if not is_strict and ",
        "test_call_order.py::test_what_follows_a_call_that_did_not_succeed_is_not_run_and_says_so",
    ),
    _mutant(
        "a request that cannot be made to fit is sent",
        "llm/request_budget.py",
        "            if size.context < 1:\n                raise ContextLengthError(",
        "            if size.context < 1:\n                return request or (",
        "test_request_budget.py::test_what_cannot_be_made_to_fit_is_not_sent",
    ),
    _mutant(
        "a reminder is stored anew with each request",
        "hooks/reminders.py",
        '_body_of(latest.get("content")) == said',
        '_body_of(latest.get("content")) is said',
        "test_reminders.py::test_persisted_reminders_leave_every_request_a_beginning_of_the_next",
    ),
    _mutant(
        "a sub-agent's unknown key fails the delegation",
        "loop.py",
        '    if not getattr(coordinator, "parent_id", None):\n        return given\n',
        "    return given\n",
        "test_loop_keys.py::test_a_sub_agent_passes_over_keys_of_another_loop_and_a_root_session_refuses_them",
    ),
)
