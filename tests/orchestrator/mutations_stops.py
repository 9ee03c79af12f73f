"""Mutations of what a stop promises: it stands, for whoever works for whom it means, until it is lifted."""

from mutation import BUS, ORCHESTRATOR, Mutant

_GATE = "../orchestrator/decision/test_stops.py"
_SERVE = "../orchestrator/serve/test_serve_stops.py"
_PROTOCOL = "../bus/protocol/test_pauses.py"

MUTANTS = (
    Mutant(
        "stops",
        "who works for a stopped session is not stopped",
        f"{BUS}/protocol/pauses.py",
        "for one in (session, root, *above):",
        "for one in (session,):",
        f"{_GATE}::test_whoever_begins_to_work_for_a_stopped_session_afterwards_is_denied",
    ),
    Mutant(
        "stops",
        "what calls tell of who works for whom is forgotten",
        f"{ORCHESTRATOR}/decision/link/ancestry.py",
        "return () if told is None else told.above",
        "return ()",
        f"{_GATE}::test_a_session_in_the_middle_takes_those_below_it_along_and_not_those_beside_it",
    ),
    Mutant(
        "stops",
        "a session gets free by leaving out for whom it works",
        f"{ORCHESTRATOR}/decision/link/ancestry.py",
        "next_ += self._list_told(own)",
        "pass",
        f"{_GATE}::test_a_session_that_told_once_for_whom_it_works_need_not_say_so_again",
    ),
    Mutant(
        "stops",
        "a session gets free by naming another above it",
        f"{ORCHESTRATOR}/decision/link/ancestry.py",
        "told.above = (*told.above[: MAX_EACH - 1], one)",
        "told.above = (one,)",
        "../orchestrator/decision/test_told_once.py"
        "::test_a_stop_means_who_ever_said_that_it_works_for_the_stopped",
    ),
    Mutant(
        "stops",
        "an operator's stop is forgotten once a coding agent was quiet",
        f"{ORCHESTRATOR}/commands/serve/service.py",
        'return None if stop is None else {"now": stop.now, "by": stop.by}',
        "return None",
        f"{_SERVE}::test_calls_of_whoever_works_for_a_stopped_session_are_denied_and_told_to_end",
    ),
    Mutant(
        "stops",
        "a call that is held when the stop comes goes on to wait",
        f"{ORCHESTRATOR}/decision/link/client.py",
        "                    question.deny_by(OPERATOR, explain_stop(stop), now)\n",
        "                    pass\n",
        f"{_GATE}::test_a_call_that_somebody_holds_is_denied_at_once_and_the_holder_is_told",
    ),
    Mutant(
        "stops",
        "what a hook had been let through just before a stop stays reserved",
        f"{ORCHESTRATOR}/commands/serve/hook_handler.py",
        "            service.release(body)  # it may have been let through just before\n",
        "",
        f"{_SERVE}::test_a_call_that_was_let_through_just_before_the_stop_is_given_back_by_the_hook",
    ),
    Mutant(
        "stops",
        "a sub-agent of a coding agent gets free by leaving out who started it",
        f"{ORCHESTRATOR}/commands/serve/hook_handler.py",
        "self._tree.restore(read_event(client, body))",
        "read_event(client, body)",
        f"{_SERVE}::test_a_sub_agent_stays_stopped_where_its_event_leaves_out_who_started_it",
    ),
    Mutant(
        "stops",
        "a tree is not stopped in a process that knows only a parent of it",
        f"{BUS}/protocol/agents.py",
        "whom = {*sessions, *roots}",
        "whom = {*sessions}",
        "../bus/protocol/test_agents.py"
        "::test_who_told_only_its_parent_is_stopped_with_its_tree_in_another_process",
    ),
    Mutant(
        "stops",
        "ids that begin alike are one session",
        f"{BUS}/protocol/agents.py",
        '    return f"{make_readable(session[: _TEXT - len(digest) - 1])}~{digest}"\n',
        "    return make_readable(session[:_TEXT])\n",
        f"{_PROTOCOL}::test_ids_are_compared_exactly_whatever_is_in_them",
    ),
    Mutant(
        "stops",
        "pauses keep an operator from stopping",
        f"{BUS}/transport/redis/storage/pauses.py",
        "most = MAX_STOPS if is_stop else MAX_PAUSES",
        "most = MAX_PAUSES",
        "../bus/transport/test_pauses.py"
        "::test_pauses_keep_nobody_from_stopping_and_stops_have_a_bound_of_their_own",
    ),
)
