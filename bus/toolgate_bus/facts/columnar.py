"""Packs and reads the fact of unanimous decisions, in which every scheduler said continue: nearly all.

One fact holds many decisions in a row: their numbers as columns, and the common beginning of their questions
only once. Readers see each as a decision of its own (`record.read_facts`).
`docs/reference/wire.md` has the fields.
"""

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, Final, TypeVar

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import packing
from toolgate_bus.telemetry.unanimous import Batch, Group
from toolgate_bus.transport.ports import FactItem

MAX_QUESTION: Final = 32 * 1024
"""Maximum size of a question, in bytes."""
MAX_RECIPIENTS: Final = 15
_T = TypeVar("_T")
_NO_ID: Final = bytes(packing.ID_BYTES)


def pack_batch(batch: Batch, epoch: float) -> Iterator[FactItem]:
    """Yield the facts of a batch, in their order; mostly one item holds them all.

    `epoch` is the number of seconds to add to the batch's clock to get seconds since the epoch. A batch has
    at most 64 decisions, each with at most 15 asked schedulers and a question of at most 32 KiB.
    """
    columns = batch.columns()
    questions, columns[5] = columns[4], [at + epoch for at in columns[5]]
    start = size = 0
    if sum(map(len, questions)) > packing.FULL_FRAME:
        for at, question in enumerate(questions):
            if size + len(question) > packing.FULL_FRAME:
                part = [column[start:at] for column in columns]
                yield FactItem(_item(batch.seq + start, batch.group, *part), at - start)
                start, size = at, 0
            size += len(question)
        columns = [column[start:] for column in columns]
    yield FactItem(_item(batch.seq + start, batch.group, *columns), len(questions) - start)


def _item(
    seq: int,
    group: Group,
    _tools: object,
    _agents: object,
    seconds: Sequence[float],
    ids: Sequence[bytes],
    questions: Sequence[bytes],
    at: Sequence[float],
    *took_and_revisions: Any,
) -> bytes:
    took, revisions = took_and_revisions[: len(group)], took_and_revisions[len(group) :]
    begin = _begin(questions)
    differ = len(begin)
    doubles = Struct(f">{len(at)}d").pack
    fields = {
        "event": "agreed",
        "seq": seq,
        "at": doubles(*at),
        "ids": b"".join(ids),
        "seconds": doubles(*seconds),
        "asked": [(name, priority, doubles(*own)) for (name, priority), own in zip(group, took, strict=True)],
        "begin": begin,
        "rest": [question[differ:] for question in questions],
    }
    if any(map(any, revisions)):
        fields["revisions"] = [_index_revisions(each) for each in revisions]
    return packing.item(_NO_ID, 0, packing.pack(fields))


def _begin(questions: Sequence[bytes]) -> bytes:
    """Return the common beginning of all questions."""
    first, last = min(questions), max(questions)
    if first == last:
        return first
    low, high = 0, min(len(first), len(last))
    while low < high:  # they agree up to `low`
        middle = (low + high + 1) // 2
        if first[:middle] == last[:middle]:
            low = middle
        else:
            high = middle - 1
    return first[:low]


def each_decision(fact: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the `decision` facts that such a fact stands for, in their order. Raises CodecError."""
    rest = _of(fact, "rest", list)
    count = len(rest)
    if not 0 < count <= packing.MAX_ITEMS or not all(isinstance(one, bytes) for one in rest):
        raise CodecError("malformed", f"1 to {packing.MAX_ITEMS} decisions stand side by side")
    begin, seq = _of(fact, "begin", bytes), _of(fact, "seq", int)
    if len(begin) * count + sum(map(len, rest)) > packing.MAX_FRAME:
        raise CodecError("oversize", "the questions of decisions side by side")
    ids, doubles = _of(fact, "ids", bytes), Struct(f">{count}d")
    if len(ids) != packing.ID_BYTES * count:
        raise CodecError("malformed", "an id for each decision")
    asked = _of(fact, "asked", list)
    if len(asked) > MAX_RECIPIENTS:
        raise CodecError("oversize", f"at most {MAX_RECIPIENTS} were asked about decisions side by side")
    revisions = fact.get("revisions", [""] * len(asked))
    if not isinstance(revisions, list) or len(revisions) != len(asked):
        raise CodecError("malformed", "revisions for each of those who were asked")
    verdicts = [
        _verdicts(one, doubles, _each(named, count)) for one, named in zip(asked, revisions, strict=True)
    ]
    columns = (_numbers(fact.get("at"), doubles), _numbers(fact.get("seconds"), doubles), rest)
    for number, (at, seconds, end) in enumerate(zip(*columns, strict=True)):
        yield {
            "event": "decision",
            "outcome": "continue",
            "why": "agreed",
            "seq": seq + number,
            "at": at,
            "id": ids[packing.ID_BYTES * number :][: packing.ID_BYTES].hex(),
            "question": begin + end,
            "seconds": seconds,
            "verdicts": [each[number] for each in verdicts],
        }


def _index_revisions(revisions: Sequence[str]) -> Any:
    """Return the revision of one scheduler's verdicts; or, if it changes, the revisions and their indexes."""
    different = list(dict.fromkeys(revisions))
    if len(different) == 1:
        return different[0]
    place = {revision: at for at, revision in enumerate(different)}
    return [different, bytes(place[revision] for revision in revisions)]


def _each(told: Any, count: int) -> list[str]:
    """Return the revision of each of `count` verdicts."""
    if isinstance(told, str):
        return [told] * count
    if isinstance(told, list) and len(told) == 2:
        different, places = told
        named = isinstance(different, list) and all(isinstance(one, str) for one in different)
        placed = isinstance(places, bytes) and len(places) == count
        if named and placed and max(places) < len(different):
            return [different[place] for place in places]
    raise CodecError("malformed", "a revision for each decision")


def _verdicts(told: Any, doubles: Struct, revisions: Sequence[str]) -> list[dict[str, Any]]:
    """Return the verdicts of one scheduler."""
    if not isinstance(told, list) or len(told) != 3:
        raise CodecError("malformed", "who was asked is a scheduler, its priority, and seconds")
    name, priority, took = told
    verdict = {"scheduler": name, "action": "continue", "phase": "select", "priority": priority}
    return [
        {**verdict, "seconds": seconds, **({"revision": revision} if revision else {})}
        for seconds, revision in zip(_numbers(took, doubles), revisions, strict=True)
    ]


def _numbers(raw: Any, doubles: Struct) -> tuple[float, ...]:
    """Read one number for each decision."""
    if not isinstance(raw, bytes) or len(raw) != doubles.size:
        raise CodecError("malformed", "a number for each decision")
    return doubles.unpack(raw)


def _of(fact: Mapping[str, Any], name: str, kind: type[_T]) -> _T:
    found = fact.get(name)
    if not isinstance(found, kind):
        raise CodecError("malformed", f"decisions side by side need {name}")
    return found
