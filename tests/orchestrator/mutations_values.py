"""Mutations of the one reading of values: what rules see is what they are, and what was ruled on runs."""

from mutation import BUS, ORCHESTRATOR, Mutant

_PLAIN = "../orchestrator/decision/test_plain_values.py"
_RUNS = "../orchestrator/decision/test_what_runs.py"
_UNREAD = "../orchestrator/decision/test_unreadable_arguments.py"
_DENIED = f"{_UNREAD}::test_they_are_denied_with_a_clear_reason_before_anybody_is_asked"
_DISPATCHER = f"{ORCHESTRATOR}/decision/round/dispatcher.py"
_VALUES = f"{ORCHESTRATOR}/decision/question/plain_values.py"

MUTANTS = (
    Mutant(
        "one reading",
        "a path is an object to a rule",
        _VALUES,
        '    if hasattr(kind, "__fspath__"):',
        "    if False:",
        f"{_PLAIN}::test_a_rule_sees_what_has_a_plain_form",
    ),
    Mutant(
        "one reading",
        "a model's field is called by its name alone",
        _VALUES,
        "if type(alias) is str and name in told:",
        "if False:",
        f"{_PLAIN}::test_a_rule_sees_what_has_a_plain_form",
    ),
    Mutant(
        "one reading",
        "a list is what it gives to who reads it",
        _VALUES,
        "        raise _NoPlainForm\n\n\ndef _is(",
        "        pass\n\n\ndef _is(",
        f"{_PLAIN}::test_what_has_no_plain_form_counts_against_the_call",
    ),
    Mutant(
        "one reading",
        "what JSON has not is an object",
        f"{BUS}/protocol/placeholders.py",
        "_DIGITS.get(type(value), 7)",
        "_DIGITS.get(type(value), 6)",
        f"{_PLAIN}::test_what_has_no_plain_form_may_be_of_any_type",
    ),
    Mutant(
        "one reading",
        "an object has the number of the one that stood where it stands",
        f"{ORCHESTRATOR}/decision/question/canonical.py",
        "if place in _numbered and _numbered[place][0] is ref:",
        "if False:",
        f"{_PLAIN}::test_an_object_is_the_same_as_itself_alone_even_where_another_takes_its_place",
    ),
    Mutant(
        "one reading",
        "arguments are copied on the outside alone",
        _VALUES,
        "        _copy_within(own)\n    return own",
        "        pass\n    return own",
        f"{_RUNS}::test_plain_arguments_run_as_the_person_saw_them",
    ),
    Mutant(
        "one reading",
        "an object that was changed runs",
        f"{ORCHESTRATOR}/decision/gate.py",
        "elif _is_changed(call, ruling):",
        "elif False:",
        f"{_RUNS}::test_an_object_that_was_changed_after_it_was_ruled_on_does_not_run",
    ),
    Mutant(
        "one reading",
        "what was ruled on changes with a list in an object",
        f"{ORCHESTRATOR}/decision/question/redact.py",
        "        plain = copy_arguments(plain)",
        "        plain = dict(plain)",
        f"{_RUNS}::test_an_object_that_was_changed_after_it_was_ruled_on_does_not_run",
    ),
    Mutant(
        "one reading",
        "a replacement takes a tool its objects",
        f"{ORCHESTRATOR}/decision/question/validation.py",
        "        restored = put_back(restored, plain, tool_input)",
        "        pass",
        f"{_RUNS}::test_a_modify_leaves_the_tool_the_objects_that_it_did_not_change",
    ),
    Mutant(
        "one reading",
        "true is one",
        f"{BUS}/protocol/json_values.py",
        "    if isinstance(one, bool) or isinstance(other, bool):\n        return False\n",
        "",
        "../bus/protocol/test_json_values.py::test_other_json_is_not_the_same_in_either_order",
    ),
    Mutant(
        "one reading",
        "what no rule can read is ruled on",
        _DISPATCHER,
        "if outgoing is not None and outgoing.fault and audience.required:",
        "if False:",
        _DENIED,
    ),
    Mutant(
        "one reading",
        "a shadow that cannot read a call denies it",
        _DISPATCHER,
        "outgoing.fault and audience.required:",
        "outgoing.fault:",
        f"{_UNREAD}::test_they_are_told_to_a_shadow_as_placeholders_and_run",
    ),
    Mutant(
        "one reading",
        "half a character is too long a text",
        f"{ORCHESTRATOR}/decision/question/redact.py",
        "    if not out.fault and holds_half(value, _MAX_VALUES):",
        "    if False:",
        _DENIED,
    ),
    Mutant(
        "one reading",
        "what is too deep is too large",
        f"{ORCHESTRATOR}/decision/question/redact.py",
        'if excess == "deep":',
        "if False:",
        _DENIED,
    ),
    Mutant(
        "one reading",
        "half a character ends the connection to a server over HTTP",
        f"{ORCHESTRATOR}/commands/mcp/upstream.py",
        "if method == CALL and self._is_remote and holds_half(params):",
        "if False:",
        "../orchestrator/commands/test_mcp_hostile_http.py::test_half_a_character_is_an_error_of_its_call_to_a_server_over_http",
    ),
    Mutant(
        "one reading",
        "a client of MCP may not write half a character",
        f"{ORCHESTRATOR}/commands/mcp/lines.py",
        "halves=peer.name == CLIENT",
        "halves=False",
        "../oracle/test_one_answer.py::test_where_nobody_rules_the_same_call_runs_as_it_is",
    ),
)
