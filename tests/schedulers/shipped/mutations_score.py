"""What must be noticed of the score: what it weighs, what it forgets, who is left alone and for how long."""

from mutation import BUS, SCHEDULERS, Mutant

_TESTS = "../schedulers/shipped/test_score.py"
_SCORE, _OUTCOMES = f"{SCHEDULERS}/shipped/score/score.py", f"{SCHEDULERS}/shipped/score/outcomes.py"
_STICKY, _STICKY_TESTS = f"{SCHEDULERS}/shipped/score/sticky.py", "../schedulers/shipped/test_sticky.py"
_SUMS, _WAITS_TESTS = f"{SCHEDULERS}/shipped/score/sums.py", "../schedulers/shipped/test_score_waits.py"
_BY_TESTS = "../schedulers/shipped/test_success_by.py"
_EXPLORATION = f"{SCHEDULERS}/shipped/score/exploration.py"
_EXPLORED_TESTS = "../schedulers/shipped/test_exploration.py"
_EJECTION = f"{SCHEDULERS}/shipped/score/ejection.py"
_REPORTER = f"{SCHEDULERS}/shipped/ejection_reporter.py"
_REPORTER_TESTS = "../schedulers/shipped/test_ejection_reporter.py"
_NOTES, _NOTES_TESTS = f"{BUS}/state/ejections.py", "../bus/state/test_ejections.py"

_CHANGES = (
    (
        "success does not count",
        _SCORE,
        "rated.append(Rating(one, value / chance,",
        "rated.append(Rating(one, value,",
    ),
    (
        "a failure that is paid for costs nothing",
        _SCORE,
        "chance * one.cost + (1 - chance) * failed",
        "chance * one.cost",
    ),
    (
        "a crowd is no slower",
        _SCORE,
        "place * crowd if queues else 0.0, _aged_s(known)",
        "0.0",
    ),
    ("calls flap between near equals", _SCORE, "else STAY if one.option.own else 0", "else 0"),
    (
        "calls leave their place for one that is hardly better",
        _SCORE,
        "STICK if one.option.key == place else STAY",
        "STAY if one.option.key == place else STAY",
        _STICKY_TESTS,
    ),
    (
        "calls of a session never leave their place",
        _SCORE,
        "one.score * (1 - (STICK if",
        "one.score * (1 - (1 if",
        _STICKY_TESTS,
    ),
    (
        "where a call went is not remembered",
        _OUTCOMES,
        "self._places is not None and key in self._group_of",
        "False",
        _STICKY_TESTS,
    ),
    (
        "all sessions have one place",
        _STICKY,
        "self._kept[group, value] = key",
        'self._kept[group, ""] = key',
        _STICKY_TESTS,
    ),
    (
        "places are remembered without bound",
        _STICKY,
        "if len(self._kept) > MAX_PLACES:",
        "if False:",
        _STICKY_TESTS,
    ),
    ("the whole group is ejected", _SCORE, "out[: len(options) // 2]", "out"),
    (
        "the best ones are ejected first",
        _SCORE,
        "out.sort(key=lambda one: (one",
        "out.sort(key=lambda one: (-one",
    ),
    ("a much worse one is never ejected", _SCORE, "if one.performance.is_sure and", "if False and"),
    (
        "the slowest is no measure",
        _SCORE,
        "slowest, fastest = max(known, default=0.0)",
        "slowest, fastest = 1.0",
    ),
    ("time forgets nothing", _SUMS, "0.5 ** (by_time + by_group", "0.5 ** (by_group"),
    ("calls of the group forget nothing", _SUMS, "0.5 ** (by_time + by_group", "0.5 ** (by_time"),
    (
        "the last calls count no more than the first",
        _SUMS,
        "+ calls / HALF_LIFE_CALLS)",
        "+ 0 * calls / HALF_LIFE_CALLS)",
    ),
    ("failures running do not eject", _OUTCOMES, "if kept.in_a_row >= IN_A_ROW and", "if False and"),
    (
        "an ejected one gets no try",
        _OUTCOMES,
        "        if kept.ejection.is_over(now):",
        "        if False:",
    ),
    ("a call is under way only by its fact", _OUTCOMES, "if decision not in self._under_way:", "if False:"),
    ("a lost call is under way for ever", _OUTCOMES, "if now - at < longest:", "if True:"),
    (
        "a lost call is under way for a quarter of an hour",
        _SUMS,
        "return min(LOST_S, max(LOST_MIN_S, LOST_TIMES * usual)) if usual else LOST_S",
        "return LOST_S",
    ),
    (
        "waits are measured by the queue",
        _SUMS,
        "        if places <= CROWD or waited:\n",
        "        if True:\n",
    ),
    (
        "one call that takes long makes a tool slow",
        _SCORE,
        "share = known.under_way / (known.under_way + known.weight + PRIOR_CALLS)",
        "share = 1.0",
    ),
    ("a wait for a slot takes no time", _SCORE, "usual + known.wait_s", "usual", _WAITS_TESTS),
    (
        "a queue of which nothing is heard never ends",
        _SUMS,
        "self.waited - (now - self.waited_to)",
        "self.waited",
        _WAITS_TESTS,
    ),
    (
        "the wait of one that let others pass is everybody's",
        _SUMS,
        "if now - waited >= self.waited_to - self.waited:",
        "if True:",
        _WAITS_TESTS,
    ),
    (
        "calls that wait for a slot are no crowd",
        _SUMS,
        "EXPECTED_S + WAIT_TIMES * self.waited",
        "EXPECTED_S",
        _WAITS_TESTS,
    ),
    ("a wait is a tool's duration", _SUMS, "(seconds + waited) * places", "seconds * places", _WAITS_TESTS),
    (
        "one that is full is bad",
        _OUTCOMES,
        "            kept.record_refusal(now, refused)  # it is full, not bad\n            return\n",
        "            kept.record_refusal(now, refused)\n",
        _WAITS_TESTS,
    ),
    (
        "one that is full gets calls",
        _OUTCOMES,
        "is_usable(now, OUT_S) and now >= kept.full_until",
        "is_usable(now, OUT_S)",
        _WAITS_TESTS,
    ),
    (
        "a label's calls say nothing of their own",
        _SCORE,
        "found = options(call)",
        "found = options()",
        _BY_TESTS,
    ),
    (
        "a label that was seen little knows nothing of the others",
        _OUTCOMES,
        "(tally.well + whole.success * VALUE_CALLS)",
        "(tally.well + GUESS * VALUE_CALLS)",
        _BY_TESTS,
    ),
    (
        "a label remembers what was before an ejection",
        _SUMS,
        "        self.tallies.clear()\n",
        "",
        _BY_TESTS,
    ),
    (
        "labels are remembered without bound",
        _SUMS,
        "if len(self.tallies) > MAX_VALUES:",
        "if False:",
        _BY_TESTS,
    ),
    (
        "each replica tries others by its own dice",
        _EXPLORATION,
        'f"explore {decision}".encode()',
        'f"{id(self)} {decision}".encode()',
        _EXPLORED_TESTS,
    ),
    (
        "no money bounds what is tried",
        _EXPLORATION,
        "self._sum + cost <= self._limit",
        "True",
        _EXPLORED_TESTS,
    ),
    (
        "what other replicas try costs nothing",
        _EXPLORATION,
        "if self._limit is not None and self.draws(decision) and _is_explored(fact):",
        "if False:",
        _EXPLORED_TESTS,
    ),
    (
        "a call that sticks tries others",
        _OUTCOMES,
        "self.explorer.draws(call.id) and not value_of(self._sticky, call)",
        "self.explorer.draws(call.id)",
        _EXPLORED_TESTS,
    ),
    (
        "an ejected one is tried for its share",
        _SCORE,
        "for one in ranked[1:] if one.option.performance.is_usable",
        "for one in ranked[1:]",
        _EXPLORED_TESTS,
    ),
    (
        "why another one was tried is not told",
        _SCORE,
        "MARK if rating.explored else ''",
        "''",
        _EXPLORED_TESTS,
    ),
    ("an end takes nothing off", _OUTCOMES, "            kept.open.pop(decision, None)\n", ""),
    (
        "an agent's undone work counts as done",
        _OUTCOMES,
        "            if ended[1]:\n",
        "            if True:\n",
    ),
    (
        "many calls try one that is out",
        _EJECTION,
        "return now >= self.until and not is_tried",
        "return now >= self.until",
    ),
    (
        "a failure costs no further request",
        _SCORE,
        "+ (cost_weight + latency_weight) * retry * (1 - chance)",
        "+ 0.0",
    ),
    (
        "a failed request costs a further one",
        _SCORE,
        "retry = 0.0 if one.key.startswith(LLM) else RETRY",
        "retry = RETRY",
    ),
    (
        "an ejected one may be the first",
        _SCORE,
        "            one.option.key in out,\n",
        "            False,\n",
    ),
    (
        "one that is back has the failures of its trouble",
        _OUTCOMES,
        "            kept.reset()\n",
        "            pass\n",
    ),
    (
        "a failed try is not told",
        _OUTCOMES,
        "        elif kept.ejection.until != until:\n",
        "        elif False:\n",
    ),
    (
        "failures that came at once make it fast",
        _OUTCOMES,
        "(well or seconds > kept.durations()[1] > 0)",
        "True",
    ),
    ("a shadow tells what it ejects", _REPORTER, "if self._context.shadow:", "if False:", _REPORTER_TESTS),
    (
        "a note is written once, whoever overwrites it",
        _REPORTER,
        "            settled = self._clock() - SETTLED_S\n",
        "            settled = self._clock() + SETTLED_S\n",
        _REPORTER_TESTS,
    ),
    (
        "each replica's note is an event of its own",
        _NOTES,
        "abs(self.at - other.at) <= SAME_S",
        "self.at == other.at",
        _REPORTER_TESTS,
    ),
    (
        "who is back is still left alone",
        _NOTES,
        "if one.why != BACK and one.until",
        "if one.until",
        _NOTES_TESTS,
    ),
    ("the time out does not grow", _EJECTION, "self.factor * 2, MAX_FACTOR", "self.factor, MAX_FACTOR"),
    ("the time out grows without bound", _EJECTION, "min(self.factor * 2, MAX_FACTOR)", "self.factor * 2"),
)

MUTANTS = tuple(
    Mutant("the score", name, file, before, after, tests[0] if tests else _TESTS)
    for name, file, before, after, *tests in _CHANGES
)
