"""Mutations of what loops rule on besides calls, and of what an LLM that thinks has seen."""

from mutation import ORCHESTRATOR, Mutant

_TURN = f"{ORCHESTRATOR}/turn"
_RESULTS = "../orchestrator/turn/test_results_ruled.py"
_POINTS = "../orchestrator/turn/test_points.py"
_STAYS = "../orchestrator/turn/test_reminders_stay.py"
_REQUEST = "../orchestrator/turn/test_user_request.py"
_GOALS = "../orchestrator/turn/test_goals_changed.py"
_MASKED = f"{_RESULTS}::test_what_a_mask_hides_is_seen_by_nobody"

_ERRORS = f"{_POINTS}::test_what_is_hidden_of_a_providers_error_is_seen_by_nobody"

_CHANGES = (
    (
        "a provider's error is no result",
        f"{_TURN}/llm/ruled_error.py",
        "asked is not None and gate.rules_on_answers:",
        "asked is not None and False:",
        _ERRORS,
    ),
    (
        "hooks get a provider's own words",
        f"{_TURN}/llm/ruled_error.py",
        '"msg": words_of(shown)}',
        '"msg": words_of(error)}',
        _ERRORS,
    ),
    (
        "a masked error has the provider's own as its context",
        f"{_TURN}/llm/request.py",
        "its request has failed\n            failed = error\n",
        "its request has failed\n            raise await self._fail(error, purpose, started)\n",
        _ERRORS,
    ),
    (
        "a provider's error that becomes the reason of a goal's end is the provider's own",
        f"{_TURN}/llm/side_request.py",
        "            raise ruled.error\n",
        "            raise failed\n",
        f"{_POINTS}::test_what_is_hidden_of_a_judges_error_is_no_reason_that_anybody_reads",
    ),
    (
        "hooks get the result that a scheduler masked",
        f"{_TURN}/calls/tool_call.py",
        "outcome, shown = ToolOutcome(seen.content, seen.output, seen.error), seen.shown",
        "outcome = ToolOutcome(seen.content, seen.output, seen.error)",
        _MASKED,
    ),
    (
        "what a tool raises is no result",
        f"{_TURN}/calls/tool_call.py",
        '            given = await ruler.give(call, f"{kind}: {message}", success=False)\n',
        "            given = await ruler.give(call, kind, success=False)\n",
        _MASKED,
    ),
    (
        "the error beside an output is not ruled on",
        f"{_TURN}/calls/ruled_output.py",
        '    if error is not None and error != {"message": output}:\n',
        "    if error is not None and False:\n",
        _MASKED,
    ),
    (
        "a signal with hidden text is recorded",
        f"{_TURN}/calls/ruled_output.py",
        'elif not is_hidden and (name != "signal" or is_common(one)):',
        "elif not is_hidden:",
        f"{_RESULTS}::test_cost_and_signals_are_those_of_the_real_result",
    ),
    (
        "results are read where nobody rules on them",
        f"{_TURN}/calls/tool_call.py",
        "is_ruled = ruler is not None and ruler.rules_on_result(_tool_of(call))",
        "is_ruled = ruler is not None",
        f"{_RESULTS}::test_where_nobody_rules_on_results_nothing_is_read_of_them_or_asked",
    ),
    (
        "an answer is shown before it is ruled on",
        f"{_TURN}/llm/request.py",
        "self._make_blocks(is_silent=self._gathers)",
        "self._make_blocks(is_silent=False)",
        f"{_POINTS}::test_an_answer_that_is_denied_is_neither_shown_nor_stored",
    ),
    (
        "calls of an answer run before it is ruled on",
        f"{_TURN}/llm/request.py",
        "None if self._rules_on_answer else on_call",
        "on_call",
        f"{_POINTS}::test_a_withheld_answer_ends_the_turn_with_the_reason_and_its_calls_do_not_run",
    ),
    (
        "a part of an answer that broke off is stored",
        f"{_TURN}/llm/request.py",
        'return "" if self._gathers else self._begun',
        "return self._begun",
        f"{_POINTS}::test_a_part_of_an_answer_that_breaks_off_is_used_nowhere",
    ),
    (
        "thinking keeps what a mask hid",
        f"{_TURN}/llm/ruled_answer.py",
        "made += [block] if clean(plain) == plain else []",
        "made += [block]",
        f"{_POINTS}::test_thinking_and_state_with_a_hidden_text_are_dropped_and_other_thinking_stays",
    ),
    (
        "a denied session is asked about at each turn",
        f"{_TURN}/turn.py",
        "loop.has_started = ruled.denied is None or ruled.stands",
        "loop.has_started = ruled.denied is None",
        f"{_POINTS}::test_a_session_is_asked_about_once_and_a_denied_one_runs_no_turn",
    ),
    (
        "what was laid over a request is gone when the LLM thinks",
        f"{_TURN}/llm/request.py",
        "if not reply.stopped and self._overlay is not None:",
        "if False and self._overlay is not None:",
        f"{_STAYS}::test_once_the_llm_thinks_all_that_it_saw_stays",
    ),
    (
        "a verdict on a goal that was replaced counts",
        f"{_TURN}/goals/pursuit.py",
        "        if not self._stands:\n            raise _Superseded\n",
        "",
        f"{_GOALS}::test_what_a_judge_says_of_a_goal_that_no_longer_stands_counts_for_nothing",
    ),
    (
        "a provider's failure ends the goal",
        f"{_TURN}/turn.py",
        '        if ended.execution == "error":\n            self.pursuit.leave()\n            return\n',
        "",
        f"{_GOALS}::test_a_failure_of_the_turns_own_provider_is_not_blamed_on_the_judge_and_the_goal_stays",
    ),
    (
        "a run that was cancelled goes on by the verdict on the turn before",
        f"{_TURN}/goals/pursuit.py",
        "        following = self._following\n        self.leave()\n        return following\n",
        "        return self._following\n",
        f"{_GOALS}::test_a_provider_that_fails_in_a_later_turn_ends_the_run_too",
    ),
    (
        "the words of a goal's judge count as the user's request",
        f"{_TURN}/turn.py",
        "self.prompt if self.user_request is None else self.user_request",
        "self.prompt",
        f"{_REQUEST}::test_the_words_of_a_judge_are_no_request_of_the_user",
    ),
    (
        "a hook's text for the system goes before what the LLM has thought",
        f"{_TURN}/hooks/injections.py",
        "is_bound = self.keeps_seen and any(",
        "is_bound = False and any(",
        f"{_STAYS}::test_a_text_that_a_hook_stores_for_the_system_changes_nothing_before_a_thought",
    ),
    (
        "half a thought is sent back",
        f"{_TURN}/llm/provider_stream.py",
        "response = streamed.begun if stopped else streamed.response",
        "response = streamed.response",
        f"{_STAYS}::test_of_an_answer_that_was_cancelled_no_thought_is_sent_back",
    ),
    (
        "thinking keeps the word that a scheduler took out of the text beside a call",
        f"{_TURN}/llm/ruled_answer.py",
        "lambda part: hide_texts(part, gone)",
        "lambda part: part",
        f"{_POINTS}::test_thinking_and_state_with_a_word_that_is_gone_from_a_text_are_dropped",
    ),
    (
        "the record has the words that were denied or changed",
        f"{ORCHESTRATOR}/decision/recorder.py",
        "body = codec.hide_text(body, hide_value)",
        "pass",
        f"{_POINTS}::test_the_record_has_the_words_that_were_given_and_no_others",
    ),
    (
        "the record has the words of every verdict on an answer",
        f"{ORCHESTRATOR}/decision/recorder.py",
        'if (words := one.get("arguments")) and words != given:',
        'if (words := one.get("arguments")) and False:',
        f"{_POINTS}::test_the_record_has_the_words_that_were_given_and_no_others",
    ),
    (
        "thinking keeps an output that may not be given",
        f"{ORCHESTRATOR}/loops/reactive.py",
        "return FinalOutput(value), drop_thoughts(reply)",
        "return FinalOutput(value), reply",
        f"{_POINTS}::test_of_an_output_that_may_not_be_given_no_thinking_and_no_state_is_kept",
    ),
    (
        "who must rule on answers is forgotten when it is gone",
        f"{ORCHESTRATOR}/decision/link/scheduler_directory.py",
        "_NAMED: Final = (LLM_REQUEST, *POINTS)",
        "_NAMED: Final = (LLM_REQUEST,)",
        f"{_POINTS}::test_a_required_scheduler_that_once_ruled_on_a_point_is_missed_while_it_is_away",
    ),
    (
        "a thought stands behind a gap",
        f"{ORCHESTRATOR}/modules/compaction.py",
        "one if at < same or at == loose else drop_thought(one)",
        "one",
        f"{_STAYS}::test_a_conversation_that_is_compacted_when_a_turn_begins_has_no_thought_behind_a_gap",
    ),
    (
        "the kernel logs what a person is asked about",
        f"{_TURN}/hooks/approvals.py",
        "return prompt not in record.getMessage()",
        "return True",
        f"{_POINTS}::test_what_a_person_is_asked_about_is_in_no_log_and_in_no_hooks_payload",
    ),
    (
        "hooks get the words that a person is asked about",
        f"{_TURN}/hooks/approvals.py",
        "given = {} if call.tool_name in POINTS else call.tool_input",
        "given = call.tool_input",
        f"{_POINTS}::test_what_a_person_is_asked_about_is_in_no_log_and_in_no_hooks_payload",
    ),
    (
        "what a goal's judge says is shown to the user unruled",
        f"{_TURN}/goals/pursuit.py",
        "        return ruled.text\n",
        "        return answer\n",
        f"{_POINTS}::test_the_words_of_a_goals_judge_are_texts_for_the_user",
    ),
    (
        "an error that becomes the answer is ruled on by nobody",
        f"{_TURN}/llm/ruled_error.py",
        "PointRuling(sentence) if rule_on_output is None else await rule_on_output(sentence)",
        "PointRuling(sentence)",
        f"{_POINTS}::test_an_error_that_becomes_the_answer_is_ruled_on_as_one",
    ),
)

MUTANTS = tuple(Mutant("points", *change) for change in _CHANGES)
