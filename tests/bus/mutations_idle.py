"""Mutations of what an idle fleet saves: rare looks end as soon as something happens."""

from mutation import BUS, SCHEDULERS, Mutant

REDIS = f"{BUS}/transport/redis"
TESTS = "../bus/transport/test_idle_inboxes.py"
FOLLOWER = "../schedulers/worker/test_config_follower.py"
MUTANTS = (
    Mutant(
        "idle",
        "a replica that is asked looks rarely for what is pushed",
        f"{SCHEDULERS}/worker/config_follower.py",
        "if is_quiet and self._inboxes.is_watching:",
        "if is_quiet:",
        f"{FOLLOWER}::test_a_replica_that_is_asked_takes_up_soon_what_is_pushed",
    ),
    Mutant(
        "idle",
        "the first question of a quiet agent leaves its long read",
        f"{REDIS}/asking/verdicts.py",
        "return was and not is_quiet and self._link is not None",
        "return False",
        f"{TESTS}::test_the_first_question_of_a_quiet_agent_ends_its_long_read",
    ),
    Mutant(
        "idle",
        "a quiet agent reads as often as a busy one",
        f"{REDIS}/asking/verdicts.py",
        "QUIET_BLOCK_MS if self._is_resting else BLOCK_MS",
        "BLOCK_MS",
        f"{TESTS}::test_an_idle_agent_and_an_idle_replica_send_less_than_one_command_beside_each_heartbeat",
    ),
    Mutant(
        "archive",
        "all of a closed file is compressed at once",
        f"{BUS}/commands/decisions/archive_store.py",
        "in self._disk.read_parts(name):",
        "in [self._disk.read(name)]:",
        "../bus/commands/test_archive_store.py::test_a_closed_file_is_compressed_with_one_part_of_it_in_memory",
    ),
)
