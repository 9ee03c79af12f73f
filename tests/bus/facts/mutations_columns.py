"""Mutations of what is packed or read once for many decisions: facts, and the first part of questions."""

from mutation import BUS, ORCHESTRATOR, Mutant

COLUMNS = "../bus/facts/test_columnar.py"
IN_ORDER = f"{COLUMNS}::test_facts_of_all_kinds_are_read_in_the_order_of_their_numbers"
MUTANTS = (
    Mutant(
        "record",
        "facts are read in the order in which they lie",
        f"{BUS}/facts/entries.py",
        "    if _NUMBERS.issuperset(map(type, numbers)):\n",
        "    if False:\n",
        IN_ORDER,
    ),
    Mutant(
        "record",
        "facts that interlock are torn apart",
        f"{BUS}/transport/redis/asking/fact_buffer.py",
        "        if part and (facts + together[0] > packing.MAX_ITEMS or size",
        "        if not part and (facts + together[0] > packing.MAX_ITEMS or size",
        IN_ORDER,
    ),
    Mutant(
        "record",
        "large facts that interlock are written as they lie",
        f"{BUS}/facts/columnar.py",
        "epoch, parted=True))]",
        "epoch))]",
        IN_ORDER,
    ),
    Mutant(
        "record",
        "offsets that go back are believed",
        f"{BUS}/facts/columnar.py",
        "    if any(one >= other for one, other in pairwise(offsets)):\n",
        "    if False:\n",
        f"{COLUMNS}::test_offsets_that_fit_no_decisions_are_refused",
    ),
    Mutant(
        "record",
        "readers that know no offsets are sent them",
        f"{ORCHESTRATOR}/decision/recorder.py",
        "    if run is not None and run.room and client.may_interlock():\n",
        "    if run is not None and run.room:\n",
        "../orchestrator/decision/test_gate.py"
        "::test_other_facts_come_between_decisions_that_share_one_only_if_all_readers_know_that",
    ),
    Mutant(
        "record",
        "any number of facts waits in others",
        f"{BUS}/transport/redis/asking/publisher.py",
        "return self.reads_offsets and len(self._waiting) < MANY_WAITING",
        "return self.reads_offsets",
        f"{COLUMNS}::test_while_many_facts_wait_each_counts_for_itself",
    ),
    Mutant(
        "worker",
        "what follows the first part of a question is believed",
        f"{BUS}/protocol/codec.py",
        "if type(rest) is not dict or not _is_usual(rest, _OTHERS[item.phase]):",
        "if type(rest) is not dict:",
        "../bus/protocol/test_question_reader.py",
    ),
    Mutant(
        "worker",
        "a question that is no result is read as one",
        f"{BUS}/protocol/codec.py",
        "_is_usual(rest, _OTHERS[item.phase]):",
        "_is_usual(rest, frozenset(rest)):",
        "../bus/protocol/test_question_reader.py",
    ),
    Mutant(
        "worker",
        "a result is read fast whatever it means to others",
        f"{BUS}/protocol/written_json.py",
        "if not is_deep and orjson.dumps(found) == text:",
        "if not is_deep:",
        "../bus/protocol/test_json_values.py",
    ),
    Mutant(
        "worker",
        "a result is read fast however deep it is",
        f"{BUS}/protocol/written_json.py",
        "if not is_deep and orjson.dumps(found) == text:",
        "if orjson.dumps(found) == text:",
        "../bus/protocol/test_json_values.py",
    ),
    Mutant(
        "worker",
        "the first part of a question may end anywhere",
        f"{BUS}/protocol/codec.py",
        "first.keys() != _FIRST_FIELDS:",
        "False:",
        "../bus/protocol/test_question_reader.py",
    ),
)
