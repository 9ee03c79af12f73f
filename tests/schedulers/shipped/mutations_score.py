"""What must be noticed of the score: what it weighs, what it forgets, who is left alone and for how long."""

from mutation import SCHEDULERS, Mutant

_TESTS = "../schedulers/shipped/test_score.py"
_SCORE, _OUTCOMES = f"{SCHEDULERS}/shipped/score/score.py", f"{SCHEDULERS}/shipped/score/outcomes.py"
_EJECTION = f"{SCHEDULERS}/shipped/score/ejection.py"

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
        "place * crowd if crowd > CROWD else 0.0, AGES * known.age_s",
        "0.0",
    ),
    ("calls flap between near equals", _SCORE, "one.score * (1 - STAY) if", "one.score if"),
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
    ("time forgets nothing", _OUTCOMES, "0.5 ** (by_time + by_group", "0.5 ** (by_group"),
    ("calls of the group forget nothing", _OUTCOMES, "0.5 ** (by_time + by_group", "0.5 ** (by_time"),
    (
        "the last calls count no more than the first",
        _OUTCOMES,
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
    ("a lost call is under way for ever", _OUTCOMES, "now - call.at < longest and", "True and"),
    ("an end takes nothing off", _OUTCOMES, "            kept.under_way -= 1\n", "            pass\n"),
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
    ("the time out does not grow", _EJECTION, "self.factor * 2, MAX_FACTOR", "self.factor, MAX_FACTOR"),
    ("the time out grows without bound", _EJECTION, "min(self.factor * 2, MAX_FACTOR)", "self.factor * 2"),
)

MUTANTS = tuple(
    Mutant("the score", name, file, before, after, _TESTS) for name, file, before, after in _CHANGES
)
