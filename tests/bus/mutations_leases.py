"""Mutations of leases: who has lost one writes nothing, and who has it keeps it."""

from mutation import BUS, Mutant

_LEASE = "../bus/facts/test_lease.py::test_"
_BOOKS = "../bus/budgets/test_settlement.py::test_"
_COUNTS = "../bus/commands/test_exporter_counts.py::test_"
_CHANGES = (
    (
        "who slept through the end of its lease writes over what the next one kept",
        f"{BUS}/facts/lua/keep_lease.lua",
        "if redis.call('GET', KEYS[1] .. ':led') ~= ARGV[1] then",
        "if false then",
        f"{_LEASE}what_a_leader_keeps_is_written_unless_another_has_led_since",
    ),
    (
        "who stands by takes the lease",
        f"{BUS}/facts/lua/take_lease.lua",
        "if leader and leader ~= ARGV[1] then",
        "if false then",
        f"{_LEASE}what_a_leader_keeps_is_written_unless_another_has_led_since",
    ),
    (
        "who stands by ends the lease of the leader",
        f"{BUS}/facts/lua/leave_lease.lua",
        "if redis.call('GET', KEYS[1] .. ':leader') == ARGV[1] then",
        "if true then",
        f"{_LEASE}who_stands_by_ends_no_other_process_lease",
    ),
    (
        "a lease runs out while a long backlog is counted",
        f"{BUS}/commands/exporter/service.py",
        "if time.monotonic() - self._lease.renewed_at >= KEEP_EVERY_S and not",
        "if False and not",
        f"{_COUNTS}the_lease_is_renewed_while_a_long_backlog_is_counted",
    ),
    (
        "a keeper that leads again goes on from where it was",
        f"{BUS}/ledger/money/settlement.py",
        "self._resumed != self._lease.term",
        "self._resumed is None",
        f"{_BOOKS}a_keeper_that_leads_again_goes_on_from_where_the_other_one_had_come_to",
    ),
    (
        "a refusal ends the keeper of a scheduler",
        f"{BUS}/facts/service.py",
        "if self._is_command and isinstance",
        "if isinstance",
        "../bus/facts/test_service.py::test_a_refusal_ends_a_command_and_no_scheduler",
    ),
)
MUTANTS = tuple(Mutant("leases", *change) for change in _CHANGES)
