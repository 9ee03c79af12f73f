"""Changes for the worse of what a record's calls would have waited for, on their own times."""

from mutation import ORCHESTRATOR, SCHEDULERS, Mutant

REPLAY = f"{ORCHESTRATOR}/commands/replay"
TESTS = "../orchestrator/commands/test_replay_rehearsed.py"
MUTANTS = (
    Mutant(
        "rehearsals",
        "what a call waited in the record counts as time to decide",
        f"{REPLAY}/rehearsed.py",
        "one.seconds - one.waited - _seconds_of_hold",
        "one.seconds - _seconds_of_hold",
        TESTS,
    ),
    Mutant(
        "rehearsals",
        "a session goes on as if it had not waited",
        f"{REPLAY}/timeline.py",
        "self._add(session.latest[count - 1] + call.asked - session.ends[count - 1],",
        "self._add(call.asked,",
        TESTS,
    ),
    Mutant(
        "rehearsals",
        "a call that rules on order deny counts as one that came before",
        f"{SCHEDULERS}/shipped/policy/rehearsal.py",
        "        if success is None:\n            self._history.forget(id_)\n        else:",
        "        if True:",
        TESTS,
    ),
    Mutant(
        "rehearsals",
        "who waited in vain keeps its place",
        f"{SCHEDULERS}/shipped/slots/rehearsal.py",
        "self._rules.end([id_], LEASE_S, now)\n        for need in request.needs:\n            self._figures",
        "for need in request.needs:\n            self._figures",
        TESTS,
    ),
    Mutant(
        "rehearsals",
        "two results of which other parts are hidden are the same",
        f"{REPLAY}/result_comparison.py",
        'and (is_same_text or was == "withheld")',
        "and True",
        "../orchestrator/commands/test_replay_comparison.py",
    ),
)
