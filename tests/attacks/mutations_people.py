"""Changes for the worse in what people are shown, and the attacks that notice them."""

from mutation import BUS, ORCHESTRATOR, SCHEDULERS, Mutant

MUTANTS = (
    Mutant(
        "law 4",
        "words of others may begin lines of their own",
        f"{BUS}/commands/markup.py",
        "return escape_markup(visible(str(text)))",
        "return escape_markup(str(text))",
        "test_every_command.py::test_what_strangers_write_does_not_steer_the_terminal_of_any_command",
    ),
    Mutant(
        "law 4",
        "the console lets pass what it is given",
        f"{BUS}/commands/terminal.py",
        "yield Segment(clean(segment.text), segment.style)",
        "yield segment",
        "../bus/telemetry/test_printable.py::test_what_nobody_escaped_is_cleaned_by_the_console",
    ),
    Mutant(
        "law 4",
        "JSON is printed as it is",
        f"{BUS}/telemetry/printable.py",
        "return visible_json(json.dumps(value, ensure_ascii=False, default=default))",
        "return json.dumps(value, ensure_ascii=False, default=default)",
        "test_every_command.py::test_what_strangers_write_does_not_steer_the_terminal_of_any_command",
    ),
    Mutant(
        "law 6",
        "a hold that came after the denial stays held",
        f"{ORCHESTRATOR}/decision/round/open_round.py",
        'if heard.verdict.action == "hold" and not heard.shadow and not self._is_answered(heard.scheduler):',
        'if heard.verdict.action == "never":',
        "../attacks/test_people_attacks.py::test_a_call_that_nobody_waits_for_any_longer_cannot_be_approved",
    ),
    Mutant(
        "law 6",
        "a hold that is heard after its own answer frees what was given",
        f"{ORCHESTRATOR}/decision/round/open_round.py",
        " and not self._is_answered(heard.scheduler):",
        ":",
        "../orchestrator/decision/test_admission.py"
        "::test_a_hold_that_is_heard_after_its_own_answer_gives_nothing_back",
    ),
    Mutant(
        "law 6",
        "a denial after its round counts for nothing",
        f"{ORCHESTRATOR}/decision/round/open_round.py",
        "and self._object(heard):",
        "and False:",
        "../orchestrator/decision/test_admission.py"
        "::test_a_denial_that_comes_after_its_round_and_before_the_decision_denies",
    ),
    Mutant(
        "law 6",
        "a denial by another replica of one that had agreed counts for nothing",
        f"{ORCHESTRATOR}/decision/link/client.py",
        "if before is None or not before.object_late(scheduler, item, now):",
        "if True:",
        "../orchestrator/decision/test_admission.py"
        "::test_a_denial_by_another_replica_of_who_had_agreed_denies_until_the_decision",
    ),
    Mutant(
        "law 6",
        "the calls of dead agents wait for people",
        f"{SCHEDULERS}/shipped/approval/queue.py",
        "one._replace(gone=one.orchestrator in gone)",
        "one._replace(gone=False)",
        "../attacks/test_people_attacks.py::test_a_call_that_nobody_waits_for_any_longer_cannot_be_approved",
    ),
    Mutant(
        "law 6",
        "a delegation may name two agents",
        f"{ORCHESTRATOR}/decision/gate.py",
        "if call.agents and two_agents(asking.tool_input, call.agents):",
        "if False:",
        "../attacks/test_people_attacks.py::test_a_delegation_to_two_agents_runs_for_neither",
    ),
    Mutant(
        "law 6",
        "a text is not looked into for secret fields",
        f"{ORCHESTRATOR}/decision/question/redact.py",
        "within = secrets_within(value, self._fields)",
        "within = None",
        "../orchestrator/decision/test_text_fields.py::test_a_field_inside_a_text_leaves_as_a_placeholder_only",
    ),
    Mutant(
        "law 6",
        "keys that others can read are taken",
        f"{BUS}/server/settings.py",
        "if mode & _OTHERS:",
        "if False:",
        "../bus/server/test_settings.py::test_a_file_of_secrets_that_others_can_read_is_refused",
    ),
    Mutant(
        "law 6",
        "nobody is told that a call waits",
        f"{ORCHESTRATOR}/decision/round/dispatcher.py",
        "call_guarded(call.on_hold, held)",
        "pass",
        "../attacks/test_people_attacks.py::test_a_call_that_waits_for_a_person_does_not_look_like_a_hang",
    ),
    Mutant(
        "law 6",
        "whose hold is cut short by its round's end is not told",
        f"{ORCHESTRATOR}/decision/round/dispatcher.py",
        "for name in holders(closed.heard):",
        "for name in ():",
        "../attacks/test_people_attacks.py::test_a_call_that_nobody_waits_for_any_longer_cannot_be_approved",
    ),
)
