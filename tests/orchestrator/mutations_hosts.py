"""Changes for the worse that the tests of what hosts rely on must notice."""

from mutation import ORCHESTRATOR, Mutant

_TURN = f"{ORCHESTRATOR}/turn"
_HOSTS = "../orchestrator/turn/test_hosts.py"
_FOREIGN = "../orchestrator/turn/test_foreign_delegation.py"
_WAYS = "../orchestrator/turn/test_ways_out.py::test_every_way_out_is_reported_once_and_leaves_nothing_behind"

MUTANTS = (
    Mutant(
        "hosts",
        "a turn without an answer leaves the conversation open",
        f"{_TURN}/turn.py",
        "            if self._prompted:\n",
        "            if False:\n",
        _WAYS,
    ),
    Mutant(
        "hosts",
        "the callbacks of a cancellation do not run",
        f"{_TURN}/turn_end.py",
        "        await _run_callbacks(token)\n",
        "        pass\n",
        f"{_HOSTS}::test_a_cancellation_runs_the_callbacks_of_the_session_and_says_what_was_asked_for",
    ),
    Mutant(
        "hosts",
        "a Stop hook runs once for the loop and once for the host",
        f"{_TURN}/hooks/completion.py",
        "        if self._told and not self._telling:\n",
        "        if False:\n",
        f"{_HOSTS}::test_a_stop_hook_runs_once_a_turn_also_where_the_host_tells_its_end_again",
    ),
    Mutant(
        "hosts",
        "a running tool does not find its call",
        f"{_TURN}/calls/tool_call.py",
        '    contexts[task] = {"tool_call_id": call.id, "parallel_group_id": call.group or None}\n',
        "    contexts[task] = {}\n",
        f"{_HOSTS}::test_a_running_tool_finds_its_call_and_its_group_under_its_task",
    ),
    Mutant(
        "hosts",
        "a child that another's tool made is ruled on as its parent",
        f"{_TURN}/session_tree.py",
        "        config = config if name == config.agent else",
        "        config = config if name else",
        f"{_FOREIGN}"
        "::test_a_child_with_its_parents_plan_is_ruled_on_under_its_own_name_with_the_call_that_made_it",
    ),
    Mutant(
        "hosts",
        "any session names any other's children",
        f"{_TURN}/child_names.py",
        "        _TOLD[parent, child] = agent\n",
        "        _TOLD[parent, child] = _TOLD['p', child] = agent\n",
        f"{_FOREIGN}::test_only_the_parents_own_tool_names_a_child",
    ),
    Mutant(
        "hosts",
        "a compaction drops the first prompt",
        f"{ORCHESTRATOR}/modules/compaction.py",
        "    kept |= {*users[:1], *users[-1:]}\n",
        "    kept |= {*users[-1:]}\n",
        "../orchestrator/modules/test_context_compaction.py"
        "::test_system_messages_and_the_first_and_the_latest_prompt_always_stay",
    ),
    Mutant(
        "hosts",
        "a session's id leads out of the folder of sessions",
        f"{ORCHESTRATOR}/modules/hooks_logging/module.py",
        "    name = session if _NAME.fullmatch(session) else",
        "    name = session if session else",
        "../orchestrator/modules/test_hooks_logging_place.py::test_a_sessions_id_leads_nowhere_else",
    ),
)
