"""Mutations of what a person's later answer promises: once, for this call, with what is reserved for it."""

from mutation import BUS, ORCHESTRATOR, Mutant

_GATE = "../orchestrator/decision/test_deferral.py"
_CAN = "../orchestrator/decision/test_capabilities.py"
_FORGOTTEN = "test_claims_forgotten.py"
_BOOKS = "../bus/budgets/test_reprieve.py"
_RESUMPTION = f"{ORCHESTRATOR}/decision/deferral/deferred_decisions.py"

MUTANTS = (
    Mutant(
        "answers",
        "whoever claims has it, whoever claimed before",
        f"{BUS}/transport/deferrals.py",
        "return claim if won else await self.find_claim(decision)",
        "return claim",
        f"{_FORGOTTEN}::test_of_two_processes_that_answer_at_once_one_goes_on",
    ),
    Mutant(
        "answers",
        "a claim that the server forgets is made anew by whoever comes",
        f"{BUS}/transport/deferrals.py",
        "            await self._stamp(decision, kept, claim)\n",
        "            pass\n",
        f"{_FORGOTTEN}::test_a_server_that_forgets_the_claim_alone_has_no_other_process_go_on",
    ),
    Mutant(
        "answers",
        "a claim that a failover forgot is not made again",
        f"{ORCHESTRATOR}/decision/link/client.py",
        "            self.kept.restore()\n",
        "            pass\n",
        f"{_FORGOTTEN}::test_one_that_is_set_back_behind_the_claim_is_told_again_by_who_made_it",
    ),
    Mutant(
        "answers",
        "that an answer was taken twice is told to nobody",
        f"{ORCHESTRATOR}/decision/deferral/claims.py",
        "        elif standing is not None and standing.answer == claim.answer",
        "        elif standing is None and claim.answer",
        f"{_FORGOTTEN}::test_an_answer_that_was_taken_twice_meanwhile_is_counted",
    ),
    Mutant(
        "answers",
        "an answer runs whatever call it comes with",
        _RESUMPTION,
        "if not token.seals(self._config.namespace, kept.body, question):",
        "if False:",
        f"{_GATE}::test_a_changed_call_does_not_run_on_it_and_the_answer_stays_good_for_its_own",
    ),
    Mutant(
        "answers",
        "what lies in the store is believed as it is",
        f"{ORCHESTRATOR}/decision/deferral/record.py",
        "sealed = bytes.fromhex(id_), hashlib.sha256(body).digest(), digest_value(asked)",
        "sealed = bytes.fromhex(id_), digest_value(asked)",
        f"{_GATE}::test_what_lies_in_the_store_may_be_changed_by_nobody",
    ),
    Mutant(
        "answers",
        "the seal does not say how long a list is",
        f"{ORCHESTRATOR}/decision/deferral/record.py",
        'digest.update(b"l%d:" % len(one))',
        'digest.update(b"l:")',
        f"{_GATE}::test_an_answer_is_good_for_the_shape_that_was_shown_and_for_no_other",
    ),
    Mutant(
        "answers",
        "the seal does not say how many keys a map has",
        f"{ORCHESTRATOR}/decision/deferral/record.py",
        'digest.update(b"m%d:" % len(one))',
        'digest.update(b"m:")',
        f"{_GATE}::test_an_answer_is_good_for_the_shape_that_was_shown_and_for_no_other",
    ),
    Mutant(
        "answers",
        "who cannot run what would run goes on with it",
        _RESUMPTION,
        "if not find_missing(call.can, own, then):",
        "if True:",
        f"{_GATE}::test_who_cannot_run_what_would_run_does_not_go_on_with_it_and_others_still_can",
    ),
    Mutant(
        "answers",
        "an answer that is too late counts",
        _RESUMPTION,
        'given = "expired" if kept.left_s <= 0 else answer.answer',
        "given = answer.answer",
        f"{_GATE}::test_too_late_an_answer_ends_it",
    ),
    Mutant(
        "answers",
        "what is reserved stays with who asked",
        f"{BUS}/ledger/money/reprieve.py",
        "moved = await self._ledger.claim(decision, owner, by)",
        "moved = False",
        f"{_BOOKS}::test_it_moves_to_who_answers_and_is_settled_by_them",
    ),
    Mutant(
        "answers",
        "whoever says that they answered has what is reserved",
        f"{BUS}/ledger/money/reprieve.py",
        "if found is not None and claim is not None and claim.by == by:",
        "if found is not None:",
        f"{_BOOKS}::test_who_only_says_that_they_answered_gets_nothing",
    ),
    Mutant(
        "answers",
        "what waits for a person is an orphan once its asker is gone",
        f"{BUS}/ledger/money/settlement.py",
        "if reason is None or await self._reprieve.waits(one):",
        "if reason is None:",
        f"{_BOOKS}::test_it_is_no_orphan_though_who_asked_is_gone",
    ),
    Mutant(
        "abilities",
        "what the caller cannot do is left as it was said",
        f"{ORCHESTRATOR}/decision/question/inability.py",
        "return [ability for ability in needed if ability not in can]",
        "return []",
        f"{_CAN}::test_what_cannot_be_done_is_denied_in_words_that_say_who_wanted_what",
    ),
)
