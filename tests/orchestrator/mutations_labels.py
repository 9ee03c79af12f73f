"""Mutations of what holds for the labels of sessions: who gives them, who bears them, what is unknown."""

from mutation import BUS, ORCHESTRATOR, Mutant

_TESTS = "../orchestrator/decision/test_session_labels.py"
_PURE = "../bus/protocol/test_session_labels.py"
_LABELS = f"{ORCHESTRATOR}/decision/link/session_labels.py"
_MARKS = f"{BUS}/protocol/session_labels.py"
_ROUND = f"{ORCHESTRATOR}/decision/round/open_round.py"
_DISPATCHER = f"{ORCHESTRATOR}/decision/round/dispatcher.py"

MUTANTS = (
    Mutant(
        "labels",
        "a new label takes the place of those before",
        _LABELS,
        "            session.marks = join_marks((session.marks, marks))\n",
        "            session.marks = dict(marks)\n",
        _TESTS,
    ),
    Mutant(
        "labels",
        "an old copy brings back what was taken away",
        _MARKS,
        "known.times < mark.times",
        "mark.is_borne",
        _PURE,
    ),
    Mutant(
        "labels",
        "an app's labels are a session's too",
        _DISPATCHER,
        "            asking = asking._replace(session_labels=labels)\n",
        "            app = {name: [value] for name, value in asking.labels.items()}\n"
        "            asking = asking._replace(session_labels={**app, **(labels or {})})\n",
        _TESTS,
    ),
    Mutant(
        "labels",
        "a shadow's labels count",
        _ROUND,
        "        if heard.shadow:\n            return\n        for one in (heard.verdict, heard.said):",
        "        for one in (heard.verdict, heard.said):",
        _TESTS,
    ),
    Mutant(
        "labels",
        "a late verdict's labels do not count",
        _ROUND,
        "            return False\n        self._take_labels(heard)\n        self._late(heard)\n",
        "            return False\n        self._late(heard)\n",
        _TESTS,
    ),
    Mutant(
        "labels",
        "what was said of a verdict that counts as another one is lost",
        _ROUND,
        "for one in (heard.verdict, heard.said):",
        "for one in (heard.verdict,):",
        _TESTS,
    ),
    Mutant(
        "labels",
        "beyond the bound a label is dropped, and the others stay known",
        _MARKS,
        "        return {} if full is None else {OVERFLOW: full}\n",
        "        return {}\n",
        _TESTS,
    ),
    Mutant(
        "labels",
        "what could not be read is empty",
        _LABELS,
        "            if not await self._wait(until):\n                return None\n",
        "            if not await self._wait(until):\n                return {}\n",
        _TESTS,
    ),
    Mutant(
        "labels",
        "a label is kept for its session alone",
        _LABELS,
        "        return tuple(names)\n",
        "        return tuple(names)[:1]\n",
        _TESTS,
    ),
    Mutant(
        "labels",
        "a result is given before its label is stored",
        _DISPATCHER,
        "        if client is not None and not client.labels.is_settled:\n",
        "        if client is None:\n",
        _TESTS,
    ),
    Mutant(
        "labels",
        "an emptied server is told nothing",
        _LABELS,
        "            self._unsure_until = began + GRACE_S\n            self._write_again()\n",
        "            self._unsure_until = began + GRACE_S\n",
        _TESTS,
    ),
    Mutant(
        "labels",
        "a delegation's result is read without the labels that it brings",
        _LABELS,
        "                session.read_after = self._clock()\n",
        "                pass\n",
        _TESTS,
    ),
)
