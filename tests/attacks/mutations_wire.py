"""What must be noticed where two versions of the wire meet."""

from mutation import BUS, ORCHESTRATOR, Mutant

TESTS = "../attacks/test_wire.py"

MUTANTS = (
    Mutant(
        "wire",
        "who shares no version is asked all the same",
        f"{ORCHESTRATOR}/decision/link/recipients.py",
        "if one.version == 0:",
        "if False:",
        f"{TESTS}::test_who_speaks_a_later_wire_only_is_named_at_once_and_counted",
    ),
    Mutant(
        "wire",
        "a phase that nobody announced is asked",
        f"{ORCHESTRATOR}/decision/link/recipients.py",
        "elif phase not in one.phases and not (phase != ADMIT and one.is_last_only):",
        "if False:",
        f"{TESTS}::test_who_does_not_rule_on_replacements_is_not_asked_about_them_and_vetoes_them_if_required",
    ),
    Mutant(
        "wire",
        "what a replica of version 1 may have dropped is not asked again",
        f"{ORCHESTRATOR}/decision/link/client.py",
        "if 0 < one.version < before:",
        "if False:",
        f"{TESTS}::test_when_a_replica_of_version_one_joins_open_questions_are_asked_again_in_it",
    ),
    Mutant(
        "wire",
        "the newest of any replica is spoken",
        f"{ORCHESTRATOR}/decision/link/scheduler_info.py",
        "common[member.name].intersection_update(member.wire)",
        "common[member.name].update(member.wire)",
        "../orchestrator/decision/test_spoken.py::test_the_highest_version_that_all_replicas_read_is_spoken",
    ),
    Mutant(
        "wire",
        "all continues name the same configuration",
        f"{BUS}/protocol/codec.py",
        "PLAIN_BODIES[body] = known",
        'PLAIN_BODIES[body] = known._replace(revision="")',
        "../bus/protocol/test_wire_two.py::test_one_revision_is_never_taken_for_another",
    ),
    Mutant(
        "law 4",
        "a signed question passes for its own withdrawal",
        f"{BUS}/protocol/signing.py",
        'return self.is_genuine("withdrawn",',
        'return self.is_genuine("question",',
        f"{TESTS}::test_a_signed_question_written_again_as_a_withdrawal_ends_no_hold",
    ),
    Mutant(
        "law 5",
        "containers are not counted",
        f"{BUS}/protocol/packing.py",
        "if self.left < 0:",
        "if False:",
        "../bus/protocol/test_wire_two.py::test_containers_are_counted_before_there_are_too_many",
    ),
    Mutant(
        "law 3",
        "any heartbeat counts as signed",
        f"{BUS}/transport/heartbeats.py",
        "and keyring.is_heartbeat(name, replica, told, mac)",
        "and True",
        "../bus/protocol/test_wire_two.py::test_only_the_replica_with_the_key_signs_for_itself",
    ),
)
