"""What must be noticed of rules on results, of labels of sessions, and of what earlier calls gave."""

from mutation import BUS, SCHEDULERS, Mutant

POLICY = f"{SCHEDULERS}/shipped/policy"
MATCHING = f"{BUS}/ruling/conditions/matching.py"
RESULTS = "../schedulers/shipped/test_policy_results.py"
FIELDS = "../schedulers/shipped/test_policy_fields.py"
MASKS = "../schedulers/shipped/test_policy_masks.py"
ORDER = "../schedulers/shipped/test_policy_order_results.py"
TABLE = "../schedulers/shipped/test_local_table.py"
PATHS = "../bus/ruling/conditions/test_result_paths.py"

_CHANGES = (
    (
        "a mask is lost where a person is asked",
        f"{POLICY}/result_ruling.py",
        "    if isinstance(verdict, Deny) or not masking:\n",
        "    if isinstance(verdict, Deny | AskUser) or not masking:\n",
        f"{RESULTS}::test_what_a_person_releases_is_masked_all_the_same",
    ),
    (
        "only the first mask that fits applies",
        f"{POLICY}/result_ruling.py",
        "        hiding.append((number, rule))\n",
        "        hiding.append((number, rule))\n        break\n",
        f"{RESULTS}::test_every_mask_that_fits_applies_and_says_which_rule_hides_what",
    ),
    (
        "a denial forgets the labels",
        f"{POLICY}/result_ruling.py",
        "    if isinstance(verdict, Deny) or not masking:\n        return _label(verdict, labels), fired",
        "    if isinstance(verdict, Deny) or not masking:\n        return verdict, fired",
        f"{RESULTS}::test_every_label_that_fits_is_given_with_whatever_verdict",
    ),
    (
        "what cannot be searched is released",
        f"{POLICY}/result_ruling.py",
        "            return _withhold(name, TOO_LONG, labels), (*fired, number)",
        "            continue",
        f"{RESULTS}::test_a_result_that_cannot_be_searched_is_withheld",
    ),
    (
        "an answer that cannot be seen is given",
        f"{POLICY}/result_ruling.py",
        "            return _withhold(name, UNSEEN, labels), (*fired, number)",
        "            continue",
        f"{RESULTS}::test_an_answer_that_must_be_masked_is_denied_where_that_cannot_be_done",
    ),
    (
        "a changed answer is given unmasked",
        f"{POLICY}/result_ruling.py",
        'if is_asked or call.phase != "select":',
        "if is_asked:",
        f"{RESULTS}::test_an_answer_that_must_be_masked_is_denied_where_that_cannot_be_done",
    ),
    (
        "the default withholds results",
        f"{POLICY}/result_ruling.py",
        'rule_for_each(deciding, call, UNKNOWN, "allow")',
        "rule_for_each(deciding, call, UNKNOWN, config.default)",
        f"{RESULTS}::test_a_result_that_no_rule_is_about_is_released_whatever_the_default",
    ),
    (
        "a mask of an agent above does not apply",
        f"{POLICY}/result_ruling.py",
        "for one in as_each_agent(call))",
        "for one in (call,))",
        f"{RESULTS}::test_a_mask_applies_for_each_agent_above",
    ),
    (
        "a local table answers for the answer",
        f"{POLICY}/scheduler.py",
        "    if points:\n",
        "    if False:\n",
        f"{RESULTS}::test_rules_on_results_and_answers_leave_the_local_table_to_calls",
    ),
    (
        "unless exempts by what was not seen",
        f"{POLICY}/rules.py",
        "return every((whole, opposite(_holds(self.unless, call, result, others))))",
        "return every((whole, not _holds(self.unless, call, result, others)))",
        f"{RESULTS}::test_an_exception_that_was_not_seen_lets_no_result_pass",
    ),
    (
        "unknown labels of a session are none",
        MATCHING,
        "    if labels is None:\n        return None\n",
        "    if labels is None:\n        return False\n",
        RESULTS,
    ),
    (
        "a rule that allows is met by one value of a label",
        MATCHING,
        '(all(fitting) if elements == "all" else any(fitting))',
        "any(fitting)",
        RESULTS,
    ),
    (
        "a table answers without a look at the labels of the session",
        MATCHING,
        "        return None if self.when_session else super().conditions",
        "        return super().conditions",
        TABLE,
    ),
    (
        "a whole tool is not offered as a label of its session may come",
        MATCHING,
        "        return None if whole and self.when_session else whole",
        "        return whole",
        TABLE,
    ),
    (
        "keys of maps are not searched",
        f"{POLICY}/masks.py",
        "        if named is not None:",
        "        if False:",
        MASKS,
    ),
    (
        "a field is hidden in the first element of a list alone",
        f"{POLICY}/fields.py",
        "        if not is_index(one.names[0]) or int(one.names[0]) == at\n",
        "        if at == 0\n",
        f"{FIELDS}::test_a_rule_hides_the_fields_that_it_names",
    ),
    (
        "the rest of a field that was cut off is shown",
        f"{POLICY}/fields.py",
        "for start, name in begun if start < len(text)]",
        "for start, name in begun if False]",
        f"{FIELDS}::test_a_field_whose_end_was_cut_off_is_hidden_to_the_end",
    ),
    (
        "below a redacted value no field is hidden",
        f"{POLICY}/fields.py",
        "        if text == HIDDEN_PART or self._levels == 0:\n",
        "        if self._levels == 0:\n",
        f"{FIELDS}::test_what_a_field_may_stand_in_and_cannot_be_seen_is_hidden_whole",
    ),
    (
        "what JSON within a text says stays where it stands in clear",
        f"{BUS}/ruling/results.py",
        "                found |= _texts(json.loads(one, strict=False))\n",
        "                json.loads(one, strict=False)\n",
        f"{FIELDS}::test_what_a_text_says_as_json_is_hidden_where_it_stands_in_clear",
    ),
    (
        "numbers are not searched",
        f"{POLICY}/masks.py",
        "    elif (kind is int or kind is float) and (",
        "    elif False and (",
        MASKS,
    ),
    (
        "escapes of JSON in a text hide a key",
        f"{POLICY}/masks.py",
        'if "\\\\" in text and (name := _find_escaped(text, finder, budget, _LEVELS)):',
        "if False and (name := _find_escaped(text, finder, budget, _LEVELS)):",
        MASKS,
    ),
    (
        "the lines of a private key are shown",
        f"{POLICY}/kinds.py",
        'return kind == "private keys" and ',
        "return False and ",
        MASKS,
    ),
    (
        "half a key at the end of a result that was cut off is shown",
        f"{POLICY}/masks.py",
        "    if is_cut and isinstance",
        "    if False and isinstance",
        MASKS,
    ),
    (
        "parts beyond the bound are dropped",
        f"{POLICY}/masks.py",
        "    if _fits(found):\n        return found\n",
        "    return found[:MAX_PARTS]\n",
        MASKS,
    ),
    (
        "any number is a card",
        f"{POLICY}/kinds.py",
        "return total % 10 == 0 and",
        "return",
        MASKS,
    ),
    (
        "what is redacted in a result is known",
        f"{BUS}/ruling/conditions/result_paths.py",
        "        return _UNSEEN_PART if HIDDEN_PART in value else value",
        "        return value",
        PATHS,
    ),
    (
        "what was cut off is not there",
        f"{BUS}/ruling/conditions/result_paths.py",
        "self._below = UNSEEN if is_cut else ",
        "self._below = ",
        PATHS,
    ),
    (
        "a result that nobody saw counts for a call",
        f"{POLICY}/order.py",
        "truth = every((truth, seen.truth if seen is not None else None))",
        "truth = every((truth, seen.truth if seen is not None else True))",
        f"{ORDER}::test_a_result_that_nobody_saw_counts_against_the_call",
    ),
    (
        "other replicas are not told what a call gave",
        f"{POLICY}/seen_results.py",
        "                await self._store.put(",
        "                0 and await self._store.put(",
        f"{ORDER}::test_another_replica_knows_what_a_call_gave",
    ),
    (
        "a call by itself may be more than the sum",
        f"{POLICY}/order.py",
        "for all_ in ([arguments], [",
        "for all_ in ([], [",
        f"{ORDER}::test_an_argument_is_added_up_over_all_calls_of_a_session",
    ),
    (
        "an amount below nothing makes room for others",
        f"{POLICY}/order.py",
        "return max(amount, Decimal(0)) if",
        "return amount if",
        f"{ORDER}::test_an_argument_is_added_up_over_all_calls_of_a_session",
    ),
    (
        "an amount that was not seen is nothing",
        f"{POLICY}/order.py",
        "return sum(known, Decimal(0)) if len(known) == len(amounts) else None",
        "return sum(known, Decimal(0))",
        f"{ORDER}::test_a_call_whose_argument_was_not_seen_fills_the_sum",
    ),
)
MUTANTS = tuple(Mutant("results", *change) for change in _CHANGES)
