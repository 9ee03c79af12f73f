"""Changes for the worse that the tests of turns, of connections and of stopping must notice."""

from mutation import BUS, ORCHESTRATOR, SCHEDULERS, Mutant

_TURN = f"{ORCHESTRATOR}/turn"
_OUTPUTS = (
    "../attacks/test_turn_attacks.py::test_whatever_a_tool_gives_or_raises_is_the_one_result_of_its_call"
)
_CALLS = "../attacks/test_turn_attacks.py::test_whatever_an_llm_calls_has_one_result"

MUTANTS = (
    Mutant(
        "law 5",
        "who stops agents does not hear of those that were gone before the next heartbeat",
        f"{BUS}/transport/redis/asking/orchestrator.py",
        "                        self._agents.farewell(),\n",
        '                        ("DEL", self._keys.agents(self.orchestrator)),\n',
        "../bus/transport/test_redis_bus.py"
        "::test_who_gives_the_order_hears_of_a_turn_that_began_and_ended_between_two_heartbeats",
    ),
    Mutant(
        "law 5",
        "a tool that exits ends the turn",
        f"{_TURN}/calls/tool_call.py",
        "            if not theirs(error):\n                raise\n            if not is_cancel_requested():",
        "            if not theirs(error) or isinstance(error, SystemExit):\n                raise\n"
        "            if not is_cancel_requested():",
        _OUTPUTS,
    ),
    Mutant(
        "law 5",
        "a result that cannot be read ends the turn",
        f"{_TURN}/calls/tool_call.py",
        '            words = f"the tool ran, but its result',
        '            raise\n            words = f"the tool ran, but its result',
        _OUTPUTS,
    ),
    Mutant(
        "law 5",
        "what contains itself is read for ever",
        f"{_TURN}/values/jsonable.py",
        "    if identity in room.inside:\n",
        "    if False:\n",
        _OUTPUTS,
    ),
    Mutant(
        "law 5",
        "what an LLM said is stored as it came, lone surrogates and all",
        f"{_TURN}/values/raw_call.py",
        "    if type(raw) is dict and _is_plain(raw):\n",
        "    if type(raw) is dict:\n",
        _CALLS,
    ),
    Mutant(
        "law 5",
        "arguments may be nested to any depth",
        f"{_TURN}/values/raw_call.py",
        "    if problem := excess(raw if type(raw) is dict else dict(raw)):\n",
        "    if problem := None:\n",
        _CALLS,
    ),
    Mutant(
        "law 5",
        "connections to the console that ask nothing make no room",
        f"{BUS}/commands/http_connection.py",
        "            next(iter(self._idle)).give_up()\n",
        "            pass\n",
        "../attacks/test_connections.py::test_half_open_connections_keep_nobody_from_the_console",
    ),
    Mutant(
        "law 5",
        "the page of metrics has a thread for everybody who holds on",
        f"{BUS}/telemetry/http.py",
        "        if len(self._open) > MAX_CONNECTIONS:\n",
        "        if False:\n",
        "../attacks/test_connections.py::test_half_open_connections_keep_nobody_from_the_metrics",
    ),
    Mutant(
        "law 5",
        "a replica that hears no signal outlives its supervisor",
        f"{SCHEDULERS}/worker/survivor.py",
        "            replicas.send(signal.SIGKILL)\n",
        "            pass\n",
        "../attacks/test_connections.py::test_a_replica_that_hangs_does_not_outlive_its_supervisor",
    ),
    Mutant(
        "the tests notice",
        "a child that requires somebody else drops whom its parent requires",
        f"{ORCHESTRATOR}/decision/inheritance.py",
        "tuple(dict.fromkeys((*parent.required, *own.required)))",
        "own.required or parent.required",
        "../orchestrator/decision/test_inheritance.py"
        "::test_whatever_a_childs_plan_says_it_is_ruled_at_least_as_its_parent_is",
    ),
    Mutant(
        "the tests notice",
        "expired questions are still decided",
        f"{SCHEDULERS}/worker/worker.py",
        "if (now - job.written) * 1000 > call.ttl_ms:",
        "if False:",
        "../schedulers/worker/test_worker_mishaps.py"
        "::test_a_question_that_is_over_or_kills_is_acknowledged_counted_and_not_decided",
    ),
    Mutant(
        "the tests notice",
        "questions that kill their replicas are never dropped",
        f"{SCHEDULERS}/worker/worker.py",
        "            if delivery.times > POISON_DELIVERIES:\n",
        "            if False:\n",
        "../schedulers/worker/test_worker_mishaps.py"
        "::test_a_question_that_is_over_or_kills_is_acknowledged_counted_and_not_decided",
    ),
    Mutant(
        "law 3",
        "a question that no scheduler can read is sent all the same",
        f"{ORCHESTRATOR}/decision/question/question.py",
        "    _check(question)\n",
        "",
        "../attacks/test_unreadable_questions.py",
    ),
    Mutant(
        "law 3",
        "fields of a caller travel as they were given",
        f"{ORCHESTRATOR}/decision/question/question.py",
        "        return make_plain(question)",
        "        return question",
        "../attacks/test_unreadable_questions.py",
    ),
    Mutant(
        "law 6",
        "a long argument hides the others from the person",
        f"{ORCHESTRATOR}/decision/question/shown_call.py",
        "    if len(arguments) > most:\n",
        "    if False:\n",
        "../attacks/test_questions_shown.py",
    ),
    Mutant(
        "law 5",
        "arguments that are no map are an error of whoever asks",
        f"{ORCHESTRATOR}/decision/question/question.py",
        "copy_arguments(arguments) if type(arguments) is dict else arguments_of(arguments),",
        "dict(arguments),",
        "../attacks/test_turn_attacks.py::test_whatever_a_program_asks_about_is_ruled_on",
    ),
)
