"""Mutations of what holds for the labels of sessions: who gives them, who bears them, what is unknown."""

from mutation import BUS, ORCHESTRATOR, Mutant

_TESTS = "../orchestrator/decision/test_session_labels.py"
_PURE = "../bus/transport/test_label_marks.py"
_LABELS = f"{ORCHESTRATOR}/decision/link/session_labels.py"
_MARKS = f"{BUS}/transport/session_labels.py"
_ROUND = f"{ORCHESTRATOR}/decision/round/open_round.py"
_DISPATCHER = f"{ORCHESTRATOR}/decision/round/dispatcher.py"

MUTANTS = (
    Mutant(
        "labels",
        "a new label takes the place of those before",
        _LABELS,
        "            session.marks = join_marks((session.marks, marks))\n",
        "            session.marks = dict(marks)\n",
        f"{_TESTS}::test_labels_only_grow_whatever_later_verdicts_say",
    ),
    Mutant(
        "labels",
        "an old copy brings back what was taken away",
        _MARKS,
        "known.times < mark.times",
        "mark.is_borne",
        f"{_PURE}::test_an_old_copy_does_not_bring_back_what_an_operator_took_away",
    ),
    Mutant(
        "labels",
        "an app's labels are a session's too",
        _DISPATCHER,
        "            asking = client.labels.put(asking, labels)\n",
        "            app = {name: [value] for name, value in asking.labels.items()}\n"
        "            asking = asking._replace(session_labels={**app, **(labels or {})})\n",
        f"{_TESTS}::test_an_apps_labels_and_a_sessions_are_never_one",
    ),
    Mutant(
        "labels",
        "a shadow's labels count",
        _ROUND,
        "        if heard.shadow:\n            return\n        for one in (heard.verdict, heard.said):",
        "        for one in (heard.verdict, heard.said):",
        f"{_TESTS}::test_a_shadows_labels_do_not_count",
    ),
    Mutant(
        "labels",
        "a late verdict's labels do not count",
        _ROUND,
        "            return False\n        self._take_labels(heard)\n        self._late(heard)\n",
        "            return False\n        self._late(heard)\n",
        f"{_TESTS}::test_a_late_verdicts_labels_count",
    ),
    Mutant(
        "labels",
        "what was said of a verdict that counts as another one is lost",
        _ROUND,
        "for one in (heard.verdict, heard.said):",
        "for one in (heard.verdict,):",
        f"{_TESTS}::test_the_labels_of_a_modify_that_counts_as_a_denial_count",
    ),
    Mutant(
        "labels",
        "beyond the bound a label is dropped, and the others stay known",
        _MARKS,
        "        return {} if full is None else {OVERFLOW: full}\n",
        "        return {}\n",
        f"{_TESTS}::test_at_the_bound_all_labels_are_unknown",
    ),
    Mutant(
        "labels",
        "what could not be read is empty",
        _LABELS,
        "            if not await self._wait(until):\n                return None\n",
        "            if not await self._wait(until):\n                return {}\n",
        f"{_TESTS}::test_labels_that_cannot_be_read_are_unknown",
    ),
    Mutant(
        "labels",
        "a label is kept for its session alone",
        _LABELS,
        "        return tuple(names)\n",
        "        return tuple(names)[:1]\n",
        f"{_TESTS}::test_children_in_other_processes_bear_labels_from_their_first_question",
    ),
    Mutant(
        "labels",
        "a result is given before its label is stored",
        _DISPATCHER,
        "        if client is not None and not client.labels.is_settled:\n",
        "        if client is None:\n",
        f"{_TESTS}::test_a_verdict_on_a_result_labels_the_session_before_the_result_is_given",
    ),
    Mutant(
        "labels",
        "an emptied server is told nothing",
        _LABELS,
        "            self._unsure_until = began + GRACE_S\n            self._write_again()\n",
        "            self._unsure_until = began + GRACE_S\n",
        f"{_TESTS}::test_a_store_that_was_emptied_is_told_again_what_is_known",
    ),
    Mutant(
        "labels",
        "a delegation's result is read without the labels that it brings",
        _LABELS,
        "                session.read_after = self._clock()\n",
        "                pass\n",
        f"{_TESTS}::test_a_childs_labels_come_back_to_its_parent_with_its_result",
    ),
    Mutant(
        "labels",
        "a question that cannot say what its session bears says that it bears nothing",
        f"{BUS}/protocol/codec.py",
        '            read.__dict__["session_labels"] = None  #',
        "            #",
        "../bus/protocol/test_codec.py::test_every_question_survives_the_wire",
    ),
    Mutant(
        "labels",
        "while the bus is away a session bears nothing any more",
        _DISPATCHER,
        "        if client.up or asking.session_labels is not None:\n",
        "        if True:\n",
        "../orchestrator/decision/test_local_tables.py"
        "::test_while_the_bus_is_away_the_labels_that_a_session_was_given_are_borne_however_long_ago",
    ),
    Mutant(
        "labels",
        "what a root is given does not reach those for whom an agent below it waits",
        _LABELS,
        " or name in waiting\n",
        "\n",
        f"{_TESTS}::test_a_grandchild_hears_what_its_root_is_given_while_its_parent_waits_for_it",
    ),
    Mutant(
        "labels",
        "a busy process never hears what others were given",
        _LABELS,
        "self._wake.wait(), self._beat_at + pause - self._clock())",
        "self._wake.wait(), pause)",
        f"{_TESTS}::test_a_process_in_which_new_sessions_never_end_hears_of_a_label_with_its_next_beat",
    ),
    Mutant(
        "labels",
        "a label of an optional scheduler is a reason to allow a call",
        _ROUND,
        "                is_required = self.audience.required.get(heard.scheduler, False)\n",
        "                is_required = True\n",
        f"{_TESTS}::test_a_question_bears_which_labels_required_schedulers_gave",
    ),
    Mutant(
        "labels",
        "a rule that allows heeds labels of anybody",
        f"{BUS}/ruling/conditions/matching.py",
        'if borne and elements == "all" and not',
        "if False and not",
        "../schedulers/shipped/test_policy_results.py"
        "::test_a_label_of_an_optional_scheduler_may_restrict_a_call_and_not_allow_it",
    ),
    Mutant(
        "labels",
        "what an operator took away is still what a required scheduler gave",
        f"{BUS}/transport/redis/storage/session_labels.py",
        "_is_meant(field.removesuffix(REQUIRED), meant)",
        "_is_meant(field, meant)",
        "../bus/transport/test_label_store.py::test_what_an_operator_takes_away_is_gone_whoever_gave_it",
    ),
)
