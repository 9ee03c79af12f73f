"""Mutations of shards: nobody asks where nobody reads, and nothing of one shard is taken for another's."""

from mutation import BUS, SCHEDULERS, Mutant

TESTS = "../bus/transport/test_shards.py"
MUTANTS = (
    Mutant(
        "shards",
        "who starts draws a shard that somebody does not read",
        f"{BUS}/transport/shards.py",
        "found &= set(member.shards)",
        "pass",
        f"{TESTS}::test_who_starts_draws_among_the_shards_that_all_read",
    ),
    Mutant(
        "shards",
        "an entry of one shard is acknowledged in another",
        f"{BUS}/transport/redis/answering/scheduler.py",
        'self._mark = f"@{lane.shard:x}" if lane.shard else ""',
        'self._mark = ""',
        f"{TESTS}::test_what_is_answered_in_a_shard_is_acknowledged_there",
    ),
    Mutant(
        "shards",
        "a question under a name of another shard is answered",
        f"{BUS}/transport/redis/answering/scheduler.py",
        "if shard_of(orchestrator) != self.lane.shard:",
        "if False:",
        f"{TESTS}::test_who_asks_in_a_shard_under_the_name_of_another_is_not_answered",
    ),
    Mutant(
        "shards",
        "a shard that is set no longer is left at once",
        f"{BUS}/transport/redis/roster/shards.py",
        "return there.union(range(self._count))",
        "return frozenset(range(self._count))",
        f"{TESTS}::test_a_new_replica_reads_a_shard_in_which_somebody_lies_that_is_set_no_longer",
    ),
    Mutant(
        "shards",
        "what one look found is told though another shard was not looked at",
        f"{BUS}/facts/reader.py",
        "for name in of[shard]], rows, not failed",
        "for name in of[shard]], rows, True",
        f"{TESTS}"
        "::test_facts_of_others_come_while_a_shard_cannot_be_read_and_it_is_said_that_some_are_missing",
    ),
    Mutant(
        "shards",
        "order is ruled on by the facts of some shards",
        f"{SCHEDULERS}/shipped/policy/progress.py",
        "if many < FULL_PAGE and self._facts.is_whole:",
        "if many < FULL_PAGE:",
        "../schedulers/shipped/test_policy_ordered.py"
        "::test_while_the_facts_of_a_shard_cannot_be_read_nothing_passes_that_may_not_follow",
    ),
)
