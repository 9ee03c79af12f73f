"""Mutations of what makes a restrictive verdict count."""

from mutation import BUS, ORCHESTRATOR, SCHEDULERS, Mutant

_TESTS = "../attacks/test_verdicts_count.py"

MUTANTS = (
    Mutant(
        "law 1",
        "silence is judged as soon as a late timer fires",
        f"{ORCHESTRATOR}/decision/round/open_rounds.py",
        "elif question.free_from > now:",
        "elif False:",
        f"{_TESTS}::test_a_denial_that_lies_unread_while_our_own_loop_stands_still_counts",
    ),
    Mutant(
        "law 1",
        "a verdict is judged by when it is read",
        f"{BUS}/ruling/round.py",
        "        self._plain = False\n        action",
        "        self._plain = False\n        self.tick(now)\n        action",
        f"{_TESTS}::test_a_denial_that_lies_unread_while_our_own_loop_stands_still_counts",
    ),
    Mutant(
        "law 1",
        "who was given up has no say any more",
        f"{BUS}/ruling/round.py",
        "(given_up and action not in RESTRICTIVE)",
        "given_up",
        "../bus/ruling/test_round_rules.py",
    ),
    Mutant(
        "law 1",
        "what cannot be written is sent as a failure",
        f"{SCHEDULERS}/worker/verdict_writer.py",
        "for form in (_short, _repair, _ours):",
        "for form in (_short, lambda _: Failure()):",
        f"{_TESTS}::test_a_verdict_that_cannot_be_written_stops_the_call_all_the_same",
    ),
    Mutant(
        "law 1",
        "a subscriber that raises ends the decision",
        f"{ORCHESTRATOR}/decision/faults.py",
        "except BROKEN as error:",
        "except KeyboardInterrupt as error:",
        f"{_TESTS}::test_subscribers_that_raise_change_no_ruling_and_keep_nobody_from_being_told",
    ),
    Mutant(
        "law 1",
        "a gate that fails lets calls run",
        f"{ORCHESTRATOR}/decision/gate.py",
        "ruling = GATE_FAILED if local is not None or answer is not None or self.ruled else UNASKED",
        "ruling = UNASKED",
        "../orchestrator/decision/test_gate_faults.py",
    ),
    Mutant(
        "law 1",
        "of several who ask the first is asked about",
        f"{ORCHESTRATOR}/decision/round/one_question.py",
        "    if len(verdicts) == 1:",
        "    if True:",
        f"{_TESTS}::test_one_who_asks_hastily_and_allows_by_default_does_not_answer_for_another",
    ),
    Mutant(
        "law 1",
        "anybody may bear the name of our own hooks",
        f"{BUS}/protocol/names.py",
        "frozenset((IN_PROCESS, ",
        "frozenset((",
        f"{_TESTS}::test_a_scheduler_by_the_name_of_our_hooks_is_not_heard_in_their_place",
    ),
    Mutant(
        "law 1",
        "silences are counted whatever the patience",
        f"{BUS}/ruling/breaker.py",
        ".setdefault(patience, _Silences())",
        ".setdefault(0.0, _Silences())",
        "../bus/ruling/test_breaker.py",
    ),
    Mutant(
        "law 1",
        "every question of a stall is a silence",
        f"{BUS}/ruling/breaker.py",
        "if asked < one.last:",
        "if False:",
        f"{_TESTS}::test_three_questions_in_one_stall_pass_nobody_over",
    ),
    Mutant(
        "law 1",
        "a denial whose words cannot be read is dropped",
        f"{ORCHESTRATOR}/decision/round/open_round.py",
        'if error.reason == "forged" or not objects:',
        "if True:",
        "test_bad_schedulers.py::test_what_means_to_stop_a_call_denies_though_its_words_cannot_be_read",
    ),
)
