"""Mutations of what keeps those who should answer from being forgotten."""

from mutation import BUS, ORCHESTRATOR, Mutant

MUTANTS = (
    Mutant(
        "law 3",
        "who vanished without leaving is forgotten at once",
        f"{BUS}/transport/attendance.py",
        "if now - since < GONE_SECONDS:",
        "if False:",
        "../attacks/test_roster_attacks.py::"
        "test_a_policy_whose_every_trace_was_deleted_is_asked_and_one_that_was_killed_is_counted_as_gone",
    ),
    Mutant(
        "law 3",
        "an unsigned heartbeat replaces a signed one",
        f"{BUS}/transport/attendance.py",
        "if earlier or not member.signed:",
        "if False:",
        "../bus/transport/test_attendance.py::test_who_signed_is_believed_only_signed_and_never_an_older_word",
    ),
    Mutant(
        "law 3",
        "unsigned replicas are believed beside signed ones",
        f"{ORCHESTRATOR}/decision/link/scheduler_info.py",
        "[one for one in each if one.signed] or each",
        "each",
        "../orchestrator/decision/test_recipients.py::test_where_some_replicas_are_signed_the_others_are_not_believed",
    ),
    Mutant(
        "law 3",
        "whatever a required scheduler announces narrows what it is asked",
        f"{ORCHESTRATOR}/decision/link/recipients.py",
        "if name in self._required and not (self._keyring is not None and one is not None and one.signed):",
        "if name in self._required and one is None:",
        "../orchestrator/decision/test_recipients.py::test_a_required_scheduler_is_asked_whatever_the_roster_says",
    ),
    Mutant(
        "law 3",
        "a replica that an emptied server forgot is not named again before the next minute",
        f"{BUS}/transport/redis/roster/heartbeat_sender.py",
        "return not any(tells_loss",
        "return True or any(tells_loss",
        "../bus/transport/test_heart.py::test_a_replica_that_a_server_forgot_is_named_again_with_the_next_heartbeat",
    ),
    Mutant(
        "law 3",
        "an agent that an emptied server forgot is not named again before the next minute",
        f"{BUS}/transport/redis/asking/orchestrator_heart.py",
        "if tells_loss(told[0]",
        "if False and tells_loss(told[0]",
        "../bus/transport/test_redis_faults.py::test_whoever_is_alive_is_found_again_on_a_flushed_server_within_the_same_minute",
    ),
    Mutant(
        "law 3",
        "every name on the roster is read, however many there are",
        f"{BUS}/transport/redis/roster/roster_sets.py",
        "FEW if size > MAX_COUNT else MAX_COUNT",
        "1_000_000",
        "../bus/transport/test_roster_sets.py::"
        "test_beyond_the_bound_strangers_are_counted_and_few_of_them_are_looked_at",
    ),
    Mutant(
        "law 3",
        "the replies to one look at the roster are read as those to another",
        f"{BUS}/transport/redis/roster/roster.py",
        "self._names.take(look, replies)",
        "self._names.take(self.asks(everything=True), replies)",
        "../bus/transport/test_roster.py::test_tasks_may_look_side_by_side",
    ),
    Mutant(
        "law 3",
        "a set names members of other kinds",
        f"{BUS}/transport/redis/roster/roster_sets.py",
        "and (kind == OLD or KINDS[one[0]] == kind)",
        "",
        "../bus/transport/test_roster_sets.py::test_a_set_holds_the_names_of_its_kind_and_no_others",
    ),
    Mutant(
        "law 3",
        "a required scheduler that is not alive is waited for at every call",
        f"{ORCHESTRATOR}/decision/round/dispatcher.py",
        "client.absence.give_up(name)",
        "pass",
        "../orchestrator/decision/test_absence.py::"
        "test_the_first_call_waits_and_further_ones_are_denied_at_once_until_a_heartbeat",
    ),
    Mutant(
        "law 3",
        "a child asks its parent's schedulers about fewer tools",
        f"{ORCHESTRATOR}/decision/inheritance.py",
        "tools=None if parent.tools is None else tuple(dict.fromkeys((*parent.tools, *(own.tools or ())))),",
        "tools=own.tools if own.tools is not None else parent.tools,",
        "../orchestrator/decision/test_inheritance.py::"
        "test_whatever_a_childs_plan_says_it_is_ruled_at_least_as_its_parent_is",
    ),
    Mutant(
        "law 2",
        "a slow call takes its replica off the roster",
        f"{BUS}/transport/redis/roster/heartbeat_sender.py",
        "if not beats:",
        "if not beats or time.monotonic() - self._moved > 1:",
        "../bus/transport/test_heart.py::test_a_loop_that_is_stuck_does_not_take_its_replica_off_the_roster",
    ),
    Mutant(
        "law 3",
        "a signed heartbeat is believed for ever",
        f"{BUS}/transport/redis/roster/roster.py",
        " and not member.left and not self.is_recent(member):",
        " and False:",
        "../attacks/test_roster_attacks.py",
    ),
)
