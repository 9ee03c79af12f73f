"""What would let a ledger be lost in silence, and the tests that must notice."""

from mutation import BUS, Mutant

EPOCH = f"{BUS}/budgets/epoch.py"
TAKING = f"{BUS}/budgets/lua/ledger_taking.lua"
EMPTIED = "test_a_ledger_that_is_emptied_while_it_is_written_again_gets_nothing_more_of_that"
KILLED = "test_what_was_confirmed_to_a_process_that_was_killed_with_a_failover_is_missed_by_the_next"
TESTS = "../bus/budgets/test_epoch.py::"
OF_FILES = "../bus/budgets/test_epoch_file.py::"
MUTANTS = (
    Mutant(
        "ledger-lost",
        "an emptied ledger is taken for a new one",
        TAKING,
        "remembered ~= '' and epoch[1] ~= remembered and 'another'",
        "false and 'another'",
        f"{TESTS}test_an_emptied_ledger_reserves_nothing_for_anybody_until_somebody_decides",
    ),
    Mutant(
        "ledger-lost",
        "what is written again is charged by a ledger that was rebuilt",
        f"{BUS}/budgets/settlement.py",
        "pack([self._facts.positions, self._facts.numbers])",
        "pack([self._facts.positions, {}])",
        "../bus/budgets/test_settlement_again.py::"
        "test_calls_that_a_rebuilt_ledger_has_are_not_charged_again_when_their_facts_are_written_again",
    ),
    Mutant(
        "ledger-lost",
        "a rebuilt ledger does not know which calls it has",
        f"{BUS}/budgets/lua/ledger_epoch.lua",
        "redis.call('HSET', key, 'state', 'settled')",
        "redis.call('HSET', key, 'state', 'denied')",
        "../bus/budgets/test_settlement_again.py::"
        "test_nor_are_they_where_nobody_knows_how_far_facts_were_read",
    ),
    Mutant(
        "ledger-lost",
        "who has not heard that a person decided reserves, and forgets it",
        TAKING,
        "number(epoch[4]) > number(ARGV[#ARGV - 4])",
        "false",
        f"{TESTS}test_who_has_not_looked_since_somebody_decided_writes_again_what_is_forgotten_of_it",
    ),
    Mutant(
        "ledger-lost",
        "who meets a ledger does not hear that a person had decided",
        EPOCH,
        "self.id, self.decided = id_, decided",
        "self.id = id_",
        f"{TESTS}test_who_has_not_looked_since_somebody_decided_writes_again_what_is_forgotten_of_it",
    ),
    Mutant(
        "ledger-lost",
        "a ledger that waits for a person reserves for who is new",
        TAKING,
        "epoch[2] and 'lost' or",
        "false or",
        f"{TESTS}test_who_begins_with_an_empty_ledger_is_stopped_by_the_first_who_remembers_another",
    ),
    Mutant(
        "ledger-lost",
        "what a failover forgot is not written again",
        f"{BUS}/budgets/epoch_watch.py",
        "for one in forgotten:",
        "for one in ():",
        f"{TESTS}test_an_older_copy_gets_back_what_was_confirmed_and_nothing_is_lost",
    ),
    Mutant(
        "ledger-lost",
        "new settlements make up for those that were forgotten",
        EPOCH,
        "            self.fallen = number - 1 if self.fallen is None else min(self.fallen, number - 1)",
        "            pass",
        f"{TESTS}test_a_settlement_in_front_of_every_question_hides_no_gap",
    ),
    Mutant(
        "ledger-lost",
        "what was restored has to fit the limits of now",
        TAKING,
        "needed <= room or op == 'restore'",
        "needed <= room",
        f"{TESTS}test_what_was_restored_may_exceed_a_limit_that_others_have_used_up_meanwhile",
    ),
    Mutant(
        "ledger-lost",
        "what was forgotten is reserved in another ledger",
        TAKING,
        "op == 'restore' and (redis.call('HGET', ekey, 'id') or '') ~= remembered",
        "false",
        f"{TESTS}{EMPTIED}",
    ),
    Mutant(
        "ledger-lost",
        "who writes again does not notice that the ledger was emptied",
        f"{BUS}/budgets/epoch_watch.py",
        "if not await self._port.declare(memory.writer, one.number, memory.id):",
        "await self._port.declare(memory.writer, one.number, memory.id)\n            if False:",
        f"{TESTS}{EMPTIED}",
    ),
    Mutant(
        "ledger-lost",
        "what a dead replica took with it is nobody's",
        EPOCH,
        "            if now - moved <= IDLE_S or (found and moved == NEVER):",
        "            if False:",
        f"{TESTS}test_what_a_replica_that_is_gone_had_confirmed_is_waited_for_and_then_a_person_decides",
    ),
    Mutant(
        "ledger-lost",
        "what was confirmed goes with the process to which it was",
        f"{BUS}/budgets/epoch_watch.py",
        "if self._file is not None and memory.id:",
        "if False:",
        f"{OF_FILES}{KILLED}",
    ),
    Mutant(
        "ledger-lost",
        "changes after a fall stand in for those that were forgotten",
        EPOCH,
        "max(self.confirmed + (self.fallen is not None), number)",
        "max(self.confirmed, number)",
        f"{OF_FILES}{KILLED}",
    ),
    Mutant(
        "ledger-lost",
        "numbers of a ledger that a person has decided about are missed for ever",
        EPOCH,
        "is_same = (one.epoch, one.decided) == (self.id, self.decided)",
        "is_same = True",
        f"{OF_FILES}test_numbers_of_another_ledger_are_nothing_to_this_one",
    ),
    Mutant(
        "ledger-lost",
        "who does not keep enough believes that it does",
        EPOCH,
        "self.fallen is not None and self.dropped <= self.fallen",
        "self.fallen is not None",
        f"{TESTS}test_who_does_not_keep_enough_leaves_the_decision_to_a_person",
    ),
    Mutant(
        "ledger-lost",
        "facts are settled before what they settle is reserved again",
        f"{BUS}/budgets/settlement.py",
        "if await self._is_behind():",
        "if False:",
        "../ha/test_ledger_failover.py::test_what_a_failover_forgets_of_the_books_is_written_again",
    ),
    Mutant(
        "ledger-lost",
        "what was written twice is added twice",
        f"{BUS}/budgets/rebuild.py",
        "is_new = (kind, id_) not in self._seen",
        "is_new = True",
        "../bus/budgets/test_rebuild.py::test_a_call_that_a_failover_had_written_twice_counts_once",
    ),
    Mutant(
        "ledger-lost",
        "the books move while they are rebuilt",
        f"{BUS}/budgets/lua/ledger_epoch.lua",
        "if (newest[1] and newest[1][1] or '0-0') ~= id then return 0 end",
        "",
        f"{TESTS}test_books_that_have_moved_are_reckoned_anew",
    ),
    Mutant(
        "ledger-lost",
        "a process that begins after the loss knows nothing",
        f"{BUS}/budgets/epoch_watch.py",
        "self.memory.recall(*await self._file.read(), time.monotonic())",
        "pass",
        f"{OF_FILES}test_a_process_that_begins_after_the_loss_knows_it_by_the_file_of_one_before",
    ),
)
