"""Mutations of the hooks: answers that a client passes over, settings that are not as they were."""

from mutation import BUS, ORCHESTRATOR, Mutant

_AGENTS, _HOOK = f"{ORCHESTRATOR}/coding_agents", f"{ORCHESTRATOR}/commands/hook"
_PROCESS = "orchestrator/toolgate_hook.py"
_SAID = "../orchestrator/coding_agents/test_hook_translation.py"
_KEPT = "../orchestrator/coding_agents/test_hook_settings.py"
_GIVEN = "../orchestrator/coding_agents/test_hook_results.py"
_ASKED = "../orchestrator/serve/test_serve_hooks.py"
_PARSED = "../orchestrator/serve/test_one_parser.py"
_READABLE = f"{_SAID}::test_whatever_is_ruled_the_client_can_read_the_answer"
_FORMS = f"{_SAID}::test_each_ruling_is_answered_in_the_clients_form"
_PLAIN = f"{_SAID}::test_arguments_that_are_no_json_between_programs_are_a_denial"
_UNREAD = f"{_SAID}::test_a_result_is_withheld_where_its_event_cannot_be_read"
_EDITED = f"{_KEPT}::test_whatever_its_owner_changed_in_between_only_our_entries_go"

_CHANGES = (
    (
        "a tool with the name of the test call runs without a ruling",
        f"{ORCHESTRATOR}/commands/serve/hook_handler.py",
        'HookDecision("deny", reason=reason), "")',
        'HookDecision("continue"), "")',
        f"{_ASKED}::test_what_status_puts_to_a_hook_is_denied_and_leaves_nothing_behind",
    ),
    (
        "an answer that breaks off is taken for one",
        _PROCESS,
        '    if fields.get(b"content-length", b"-").strip() != b"%d" % len(body):\n',
        "    if False:\n",
        f"{_SAID}::test_an_answer_that_breaks_off_is_none",
    ),
    (
        "an argument that cannot be read is another text",
        f"{_AGENTS}/event.py",
        '    if text.strip(BLANK)[:1] != "{":\n',
        '    if text.strip(BLANK)[:1] != "{" or len(text) > 20:\n',
        f"{_PARSED}::test_a_client_is_told_that_such_a_call_is_not_run_if_anybody_might_object",
    ),
    (
        "a denial without words",
        f"{_AGENTS}/translation.py",
        '…") or none',
        '…") or reason',
        _READABLE,
    ),
    (
        "of two arguments of one name rules see the last",
        f"{BUS}/protocol/json_values.py",
        "    if len(found) < len(pairs):",
        "    if False:",
        f"{_ASKED}::test_arguments_that_rules_cannot_see_as_the_client_does_are_denied_if_anybody_might_object",
    ),
    (
        "a sub-agent's sub-agent stands below the conversation",
        f"{_AGENTS}/agent_tree.py",
        "        self._note(event)\n",
        "",
        "../orchestrator/coding_agents/test_agent_tree.py::test_each_stands_below_those_that_were_told_before_it",
    ),
    (
        "no number in an answer",
        f"{_AGENTS}/translation.py",
        "allow_nan=False",
        "allow_nan=True",
        f"{_SAID}::test_arguments_that_are_no_json_between_programs_are_a_denial",
    ),
    (
        "another tool is passed over",
        f"{_AGENTS}/translation.py",
        "if ruling.tool != event.tool:",
        "if False:",
        _FORMS,
    ),
    (
        "arguments that cannot be changed are passed over",
        f"{_AGENTS}/translation.py",
        'elif others is not None and "arguments" not in event.can:',
        "elif False:",
        f"{_SAID}::test_who_cannot_change_or_ask_does_not_run_the_call_as_it_was",
    ),
    (
        "Codex is told to ask",
        f"{_AGENTS}/codex.py",
        'frozenset({"arguments"})',
        'frozenset({"arguments", "ask"})',
        f"{_SAID}::test_an_event_reads_as_its_client_means_it",
    ),
    (
        "Gemini CLI keeps an argument that was taken away",
        f"{_AGENTS}/gemini.py",
        "if event.arguments.keys() - arguments.keys():",
        "if False:",
        _FORMS,
    ),
    (
        "Cursor is told nothing",
        f"{_AGENTS}/cursor.py",
        '    return {"permission": "allow"}\n',
        "    return None\n",
        _READABLE,
    ),
    (
        "an event that cannot be read is let go by the process",
        _PROCESS,
        '    return "other" if name else ""\n',
        '    return "other"\n',
        f"{_SAID}::test_what_cannot_be_read_is_denied_where_anybody_is_required",
    ),
    (
        "a result in an event that cannot be read is denied as a call",
        _PROCESS,
        '        return "after"\n',
        '        return "before"\n',
        _UNREAD,
    ),
    (
        "what a tool gave says which event it is",
        _PROCESS,
        "        elif depth == 1:\n",
        "        elif depth >= 1:\n",
        _UNREAD,
    ),
    (
        "of two names of an event the last counts",
        _PROCESS,
        "                is_awaited = field not in fields\n",
        "                is_awaited = True\n",
        f"{_SAID}::test_an_event_that_is_named_twice_is_stopped_whichever_it_is",
    ),
    (
        "an event is read further than takes a moment",
        _PROCESS,
        "        if count == MAX_TOKENS or (depth",
        "        if (depth",
        f"{_SAID}::test_a_long_event_is_read_in_a_moment_and_one_of_too_many_parts_as_far_as_that_goes",
    ),
    (
        "a result that cannot be read is given though a required scheduler rules on such",
        f"{ORCHESTRATOR}/commands/serve/hook_handler.py",
        "        return self._service.results.must_rule_on(tool) or (",
        "        return False and (",
        f"{_ASKED}::test_a_result_that_cannot_be_read_is_withheld_where_a_required_scheduler_rules_on_such",
    ),
    (
        "of an output of Cursor that programs read differently rules see one reading",
        f"{_AGENTS}/cursor.py",
        "        found = read_json(told)\n",
        '        found = __import__("json").loads(told)\n',
        f"{_GIVEN}::test_of_an_output_of_cursor_that_programs_read_differently_rules_see_the_text",
    ),
    (
        "a mark at the beginning of a text is taken for the beginning of a list",
        f"{_AGENTS}/given_text.py",
        'given.outcome == "masked" and given.is_cut and',
        'given.outcome == "masked" and',
        f"{_GIVEN}::test_a_text_that_begins_with_a_mark_is_given_whole",
    ),
    (
        "a comma stays behind",
        f"{_HOOK}/settings_text.py",
        "return text[:comma] + (between",
        "return text[: comma + 1] + (between",
        _EDITED,
    ),
    (
        "what was made stays behind",
        f"{_HOOK}/settings_text.py",
        "                keys = keys[:-1]\n",
        "                break\n",
        _EDITED,
    ),
    (
        "a comment goes with a hook",
        f"{_HOOK}/settings_text.py",
        " or changed.comments != self.comments",
        "",
        f"{_KEPT}::test_a_comment_inside_an_entry_of_ours_is_not_lost",
    ),
    (
        "what stands behind a table goes with it",
        f"{_HOOK}/settings_text.py",
        '(tail.group() if tail else "")',
        '""',
        f"{_KEPT}::test_hooks_in_toml_leave_all_else_as_it_was",
    ),
    (
        "the mode is a new file's",
        f"{_HOOK}/settings_file.py",
        "replace_file(self.target, content, mode)",
        "replace_file(self.target, content, None)",
        f"{_KEPT}::test_mode_and_link_stay",
    ),
    (
        "an output of another form is given, which Claude Code passes over",
        f"{_AGENTS}/claude_output.py",
        "            if text != own and name in _FIXED:\n",
        "            if False:\n",
        f"{_GIVEN}::test_an_output_of_claude_code_keeps_its_form_or_is_one_that_is_known",
    ),
    (
        "a turn goes on after an output that the client may pass over",
        f"{_AGENTS}/claude.py",
        '_replace(output.value, "" if output.is_sure else text_of_given(given))',
        '_replace(output.value, "")',
        f"{_GIVEN}::test_an_output_of_a_tool_that_is_not_known_ends_the_turn_if_its_form_may_be_another",
    ),
    (
        "names in a withheld output may be data",
        f"{_AGENTS}/claude_output.py",
        "_FIELD.fullmatch(name) is not None and ",
        "",
        f"{_GIVEN}::test_of_a_withheld_output_no_name_is_given_that_may_be_data_or_that_a_rule_hid",
    ),
    (
        "a name behind the cut, which nobody saw, is given",
        f"{_AGENTS}/claude_output.py",
        "if not all(key in given or _is_field(key, self._hidden) for key in own):",
        "if False:",
        f"{_GIVEN}::test_of_a_long_output_no_name_is_given_that_nobody_saw",
    ),
    (
        "names in a withheld output may be what a rule hid",
        f"{_AGENTS}/claude_output.py",
        " and not any(part in name for part in hidden)",
        "",
        f"{_GIVEN}::test_of_a_withheld_output_no_name_is_given_that_may_be_data_or_that_a_rule_hid",
    ),
    (
        "the file with the whole output is named",
        f"{_AGENTS}/claude_output.py",
        "if name not in _COPIES}\n        return NewOutput(made",
        "}\n        return NewOutput(made",
        f"{_GIVEN}::test_a_copy_of_the_output_in_a_file_is_not_named_where_the_output_is_changed",
    ),
    (
        "what failed is given though parts of it are hidden",
        f"{_AGENTS}/translation.py",
        'if words and event.kind == "batch" else b""',
        'if False else b""',
        f"{_GIVEN}::test_the_words_of_a_failed_tool_of_claude_code_are_withheld_by_the_batch_alone",
    ),
    (
        "a hook that cannot run lets the call go",
        f"{_HOOK}/entries.py",
        "    if denies:\n        return f",
        "    if False:\n        return f",
        f"{_KEPT}::test_whoever_is_required_the_entry_says_it_and_denies_if_nothing_runs",
    ),
)
MUTANTS = tuple(Mutant("hooks", *change) for change in _CHANGES)
