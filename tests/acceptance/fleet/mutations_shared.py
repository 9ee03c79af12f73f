"""Mutations of several schedulers in one process: each has what is its own, and none holds up another."""

from mutation import BUS, SCHEDULERS, Mutant

HOST = f"{BUS}/transport/redis/answering/shard_connection.py"
HOST_TESTS = "../bus/transport/test_scheduler_host.py"
MUTANTS = (
    Mutant(
        "shared",
        "an author's code changes what another sees",
        f"{SCHEDULERS}/worker/question_cache.py",
        "return _copy(self.shared(item))",
        "return self.shared(item)",
        "../schedulers/worker/test_question_cache.py::test_what_one_does_with_its_arguments_no_other_sees",
    ),
    Mutant(
        "shared",
        "a question is known by its id alone",
        f"{SCHEDULERS}/worker/question_cache.py",
        "known[0] is item or _is_same(known[0], item)",
        "True",
        "../schedulers/worker/test_question_cache.py"
        "::test_another_question_under_the_same_id_is_not_taken_for_it",
    ),
    Mutant(
        "shared",
        "who was left out waits for the others' read",
        HOST,
        "block = BLOCK_MS if len(together) == len(self.host.readers) else SHORT_BLOCK_MS",
        "block = BLOCK_MS",
        f"{HOST_TESTS}::test_nobody_is_given_more_than_there_is_room_for",
    ),
    Mutant(
        "shared",
        "who has little room is given the share of the others",
        HOST,
        "count = min(reader.room for reader in together)",
        "count = most",
        f"{HOST_TESTS}::test_nobody_is_given_more_than_there_is_room_for",
    ),
    Mutant(
        "shared",
        "a broken inbox is everyone's",
        f"{BUS}/transport/redis/answering/scheduler_upkeep.py",
        "            else:\n                reader.is_paused = False\n",
        "",
        f"{HOST_TESTS}::test_an_inbox_that_is_broken_is_its_schedulers_own_trouble",
    ),
    Mutant(
        "shared",
        "what came into one inbox is decided before the others are read",
        HOST,
        "len(reply) < self._asked",
        "False",
        f"{HOST_TESTS}::test_a_question_to_all_is_read_before_any_decides",
    ),
    Mutant(
        "shared",
        "a wrong configuration is taken beside right ones",
        f"{SCHEDULERS}/worker/process.py",
        "    if wrong:\n        raise ReloadError(wrong)\n",
        "",
        "test_shared_process.py::test_a_reload_takes_all_configurations_or_none",
    ),
)
