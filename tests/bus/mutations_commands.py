"""Mutations of ordinary commands that are sent together: each caller has its own reply, and nobody hangs."""

from mutation import BUS, Mutant

TESTS = "../bus/transport/test_command_queue.py"
QUEUE = f"{BUS}/transport/redis/client/command_queue.py"
MUTANTS = (
    Mutant(
        "commands",
        "a caller is given the replies of another",
        QUEUE,
        "at += len(unit.commands)",
        "at += 0",
        f"{TESTS}::test_what_waits_goes_in_one_round_trip_and_each_gets_its_own_reply",
    ),
    Mutant(
        "commands",
        "others wait behind a read that waits for news",
        QUEUE,
        "            if unit.alone:\n",
        "            if False:\n",
        f"{TESTS}::test_what_holds_a_connection_up_goes_alone",
    ),
    Mutant(
        "commands",
        "commands for several nodes of a cluster go together",
        QUEUE,
        "size + len(unit.commands) > self._most_together",
        "size + len(unit.commands) > MAX_TOGETHER",
        f"{TESTS}::test_where_each_caller_is_to_be_alone_nothing_is_sent_together",
    ),
    Mutant(
        "commands",
        "replies that are too few are handed on",
        QUEUE,
        "if len(replies) != len(commands):",
        "if False:",
        f"{TESTS}::test_replies_that_are_too_few_are_nobodys",
    ),
    Mutant(
        "commands",
        "who has waited too long is sent all the same",
        QUEUE,
        "if unit.since < late:",
        "if False:",
        f"{TESTS}::test_who_waits_for_too_long_is_told_and_its_command_is_not_sent",
    ),
    Mutant(
        "commands",
        "a failure is told to the first alone",
        QUEUE,
        "            for unit in units:\n                _tell(unit, error)",
        "            _tell(units[0], error)",
        f"{TESTS}::test_a_connection_that_fails_fails_all_that_went_by_it_and_the_next_go_on",
    ),
)
