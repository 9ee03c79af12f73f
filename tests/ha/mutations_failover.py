"""What would make a failover lose, or wait, and the tests that must notice."""

from mutation import BUS, Mutant

SENTINELS = f"{BUS}/transport/redis/sentinels.py"
MUTANTS = (
    Mutant(
        "failover",
        "one sentinel names the primary",
        SENTINELS,
        "if votes > sentinels // 2:",
        "if votes > 0:",
        "../bus/transport/test_sentinels.py::test_the_primary_is_who_more_than_half_of_all_sentinels_name",
    ),
    Mutant(
        "failover",
        "connections to a primary that leaves stay",
        SENTINELS,
        "transport.abort()\n        self._prune()",
        "pass\n        self._prune()",
        "../ha/test_sentinel.py::test_a_primary_is_left_before_it_is_demoted",
    ),
    Mutant(
        "failover",
        "what was confirmed is believed to outlive the server",
        f"{BUS}/transport/redis/publisher.py",
        "        self._write_kept(now)",
        "        pass",
        "../ha/test_sentinel.py::test_what_a_new_primary_had_not_taken_yet_stands_in_the_record_all_the_same",
    ),
    Mutant(
        "failover",
        "another service's move is believed",
        SENTINELS,
        "len(words) == 5 and words[0] == service",
        "len(words) == 5",
        "../bus/transport/test_sentinels.py::test_a_move_is_read_off_what_sentinels_publish",
    ),
)
