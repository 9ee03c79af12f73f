"""Mutations of the proxy for MCP: calls that nobody ruled on, answers to others, words unnoticed."""

from mutation import ORCHESTRATOR, Mutant

_MCP = f"{ORCHESTRATOR}/commands/mcp"
_RULED = "../orchestrator/commands/test_mcp_ruled.py"
_HOSTILE = "../orchestrator/commands/test_mcp_hostile.py"
_PURE = "../orchestrator/commands/test_mcp_values.py"
_GIVEN = "../orchestrator/commands/test_mcp_results.py"
_GIVING = "../orchestrator/commands/test_mcp_results_ruled.py"

_WORDS = "../orchestrator/commands/test_mcp_server_words.py"

_CHANGES = (
    (
        "the words of progress pass by the rules on results",
        f"{_MCP}/session.py",
        "        if is_wordless(method, params) or not await self._withholds_words(server):\n",
        "        if method == PROGRESS or not await self._withholds_words(server):\n",
        f"{_WORDS}::test_no_word_that_a_server_says_by_itself_passes_while_results_of_it_are_ruled_on",
    ),
    (
        "a notification that nobody knows passes by the rules on results",
        f"{_MCP}/messages.py",
        "    return {} if method in _BARE else None\n",
        "    return dict(told)\n",
        f"{_WORDS}::test_no_word_that_a_server_says_by_itself_passes_while_results_of_it_are_ruled_on",
    ),
    (
        "a server asks the client by the rules on results",
        f"{_MCP}/calls.py",
        "            if (await ruling.give(asked)).changed:\n",
        "            if False:\n",
        f"{_WORDS}::test_a_server_that_asks_is_ruled_on_as_a_result_of_its_call",
    ),
    (
        "what a tool asks for before it runs passes by the rules on results",
        f"{_MCP}/calls.py",
        "                if given.changed:\n",
        "                if False:\n",
        f"{_WORDS}::test_what_a_tool_asks_for_before_it_runs_is_ruled_on_as_its_result",
    ),
    (
        "of two tokens the first counts",
        f"{_MCP}/http_access.py",
        "return len(given) == 1 and",
        "return",
        "../orchestrator/serve/test_one_parser.py::test_of_two_tokens_none_counts",
    ),
    (
        "a denied call reaches the server",
        f"{_MCP}/calls.py",
        "        if not ruling.allowed:\n            return one.refuse(ruling.refusal, ruling.id)\n",
        "",
        f"{_RULED}::test_a_denied_call_reaches_no_server",
    ),
    (
        "a call without an id goes on to the server",
        f"{_MCP}/session.py",
        "        if not method.startswith(NOTIFICATIONS):\n",
        "        if False:\n",
        f"{_HOSTILE}::test_a_request_without_an_id_reaches_no_server",
    ),
    (
        "another spelling of a call is no call",
        f"{_MCP}/messages.py",
        "if method != CALL and _squeeze(method) == _squeeze(CALL):",
        "if False:",
        f"{_HOSTILE}::test_no_other_spelling_of_a_call_reaches_a_server",
    ),
    (
        "a call moves to a tool outside the servers",
        f"{_MCP}/calls.py",
        "            catalog.offers(self._name),\n",
        '            {**catalog.offers(self._name), "bash": {}},\n',
        f"{_RULED}::test_no_call_moves_to_a_tool_that_no_server_has",
    ),
    (
        "a changed description is forgotten once it is taken back",
        f"{_MCP}/catalog.py",
        "self._changed[server] = before | marked",
        "self._changed[server] = marked",
        f"{_RULED}::test_a_tool_that_said_something_else_once_stays_a_changed_one",
    ),
    (
        "a description is no part of what a tool says",
        f"{_MCP}/catalog.py",
        '"title", "description",',
        '"title",',
        f"{_PURE}::test_whatever_a_tool_says_of_itself_is_in_its_digest",
    ),
    (
        "a tool that changed while its call waited is called",
        f"{_MCP}/calls.py",
        "        if problem:\n            ruling.release()\n",
        "        if False:\n            ruling.release()\n",
        f"{_RULED}::test_a_tool_that_changes_while_a_call_of_it_waits_is_not_called",
    ),
    (
        "structured content is lost beside a notice",
        f"{_MCP}/answers.py",
        'return {**result, "content": [_text(notice)',
        'return {"content": [_text(notice)',
        f"{_RULED}::test_a_changed_result_keeps_all_that_the_server_gave",
    ),
    (
        "resources pass altered",
        f"{_MCP}/upstream.py",
        "        self._learn(method, result)\n",
        '        self._learn(method, result)\n        result.pop("_meta", None)\n',
        f"{_RULED}::test_a_result_is_the_servers_to_the_last_field",
    ),
    (
        "a cancellation is not passed on",
        f"{_MCP}/upstream.py",
        "        opts: sdk.CallOptions = {}\n",
        '        opts: sdk.CallOptions = {"cancel_on_abandon": False}\n',
        f"{_RULED}::test_a_cancelled_call_is_cancelled_at_its_server",
    ),
    (
        "progress goes to another client",
        f"{_MCP}/upstream.py",
        "            taken = self._shared or token in self._told\n",
        "            taken = False\n",
        f"{_HOSTILE}::test_what_two_clients_are_told_and_answered_stays_apart",
    ),
    (
        "a shared server is asked under the clients' own ids",
        f"{_MCP}/upstream.py",
        "if exchange is not None and not self._shared else own",
        "if exchange is not None else own",
        f"{_HOSTILE}::test_what_two_clients_are_told_and_answered_stays_apart",
    ),
    (
        "what a user says is not looked at",
        f"{_MCP}/answers.py",
        'return "allow" if isinstance(result, Mapping) and result.get("action") == "accept" else "refuse"',
        'return "allow"',
        f"{_RULED}::test_an_answer_is_taken_as_it_was_given",
    ),
    (
        "an answer is good for the proxy that asked alone",
        f"{_MCP}/calls.py",
        "text_of(self._params, SESSION) or state.session)",
        "text_of(self._params, SESSION))",
        f"{_RULED}::test_an_answer_goes_on_with_its_decision_in_another_proxy",
    ),
    (
        "an answer counts for a tool that says something else by then",
        f"{_MCP}/calls.py",
        'said = answers.answer_in(self._params) if is_same else "refuse"',
        "said = answers.answer_in(self._params)",
        f"{_RULED}::test_an_answer_about_a_tool_that_says_something_else_by_then_is_void",
    ),
    (
        "the trace of a request is lost",
        f"{_MCP}/calls.py",
        "            trace=trace_of(self._params),\n",
        "",
        f"{_RULED}::test_trace_and_session_of_a_request_are_its_questions_and_the_server_gets_them_as_they_are",
    ),
    (
        "a result is not ruled on",
        f"{_MCP}/calls.py",
        "        seen = results.given_result(result, given, None if tool is None else tool.output)\n",
        "        seen = result\n",
        f"{_GIVING}::test_what_is_withheld_reaches_no_client",
    ),
    (
        "an error of the server is no result",
        f"{_MCP}/calls.py",
        "            if error.code == sdk.REQUEST_TIMEOUT:",
        "            if True:",
        f"{_GIVING}::test_an_error_of_the_server_is_a_result_too",
    ),
    (
        "fields that the protocol does not know are not ruled on",
        f"{_MCP}/results.py",
        "if name not in _APART and name not in told}",
        "if False}",
        f"{_GIVEN}::test_fields_that_the_protocol_does_not_know_are_ruled_on_as_well",
    ),
    (
        "what stands beside a masked result is given as it is",
        f"{_MCP}/results.py",
        " if name in result}, given.hidden)\n",
        " if name in result}, ())\n",
        f"{_GIVEN}::test_both_copies_and_what_is_told_beside_them_are_masked_together",
    ),
    (
        "data that no rule has seen are given with a masked result",
        f"{_MCP}/results.py",
        "    if block == told and told is own and",
        "    if block == told and",
        f"{_GIVEN}::test_data_are_told_by_type_and_size_and_are_not_given_where_anything_is_hidden",
    ),
    (
        "a promise of form is broken",
        f"{_MCP}/results.py",
        '        made["isError"] = True\n',
        "        pass\n",
        f"{_GIVEN}::test_a_promise_of_form_is_kept_or_the_result_is_an_error",
    ),
    (
        "what nobody listens to is kept",
        f"{_MCP}/upstream.py",
        "has_room = self._count < MAX_UNHEARD",
        "has_room = True",
        f"{_HOSTILE}::test_who_talks_to_a_client_that_does_not_listen_fills_no_memory",
    ),
    (
        "one server that lists nothing ends the calls of all",
        f"{_MCP}/session.py",
        "            if server is whose:\n",
        "            if True:\n",
        f"{_HOSTILE}::test_a_server_that_never_lists_its_tools_is_an_error_of_its_own_calls_alone",
    ),
    (
        "a request of a page of somebody else's is heard",
        f"{_MCP}/sdk.py",
        "enable_dns_rebinding_protection=bool(hosts)",
        "enable_dns_rebinding_protection=False",
        "test_mcp.py::test_only_this_machine_and_its_own_pages_are_heard",
    ),
    (
        "resources and prompts are no results",
        f"{_MCP}/session.py",
        "        if method in READS:\n",
        "        if False:\n",
        f"{_GIVING}::test_a_resource_is_ruled_on_as_the_result_of_a_tool_of_the_methods_name",
    ),
    (
        "a masked resource keeps an address that tells more",
        f"{_MCP}/results.py",
        'return {"uri": uri if is_own else _NOWHERE, "text": text}',
        'return {"uri": uri, "text": text}',
        f"{_GIVEN}::test_a_masked_resource_keeps_its_parts_and_loses_data_and_addresses_that_tell_more",
    ),
)
MUTANTS = tuple(Mutant("mcp", *change) for change in _CHANGES)
