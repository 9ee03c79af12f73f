"""Kinds of cases that still win, in `known.yaml`: each with its reason, until it is mended.

A kind may be a glob, for all its doors say: `disagreement: *: surrogate at *`. The sample of `make test`
holds them strictly: what wins and is not known fails, and so does what is known and wins no longer.
`python tests/oracle/run.py --mended` takes the latter out.
"""

import fnmatch
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import yaml
from cases import World
from siege import Chosen, Found, besiege, plan

__all__ = [
    *("KNOWN", "count_visits", "is_known", "is_tried", "mended", "open_kinds"),
    *("planned", "sample", "surprises", "take_out"),
]

FILE = Path(__file__).parent / "known.yaml"
SEED = 2
SIZE = {
    "denied": 420,
    "asked": 280,
    "allowed": 280,
    "approved": 280,
    "repeated": 180,
    "pooled": 120,
    "lineage": 180,
}
"""Cases of a sample."""
OTHERS = 80
"""Those of other families."""
EVERY = 3
"""One case of so many is taken: of more rules."""
WORDS = ("let through", "disagreement", "fault", "false alarm", "unread")


def _read() -> Mapping[str, str]:
    told = yaml.safe_load(FILE.read_text()) or {}
    return {kind: why for why, kinds in told.items() for kind in kinds}


KNOWN: Mapping[str, str] = _read()
"""What wins (`let through: policy denies: list at mcp`), and why."""


def is_known(what: str, kind: str) -> bool:
    """Whether a kind is known to win so; of two forms in one, either is enough."""
    return any(_fits(one, f"{what}: {kind}") for one in KNOWN)


def _fits(known: str, won: str) -> bool:
    """Whether what is known is what won: of two forms in one, either is enough."""
    head, at, doors = won.rpartition(" at ") if " at " in won else (won, "", "")
    *before, forms = head.split(": ")
    each = (forms, *(forms.split(" + ") if " + " in forms else ()))
    return any(fnmatch.fnmatchcase(f"{': '.join((*before, one))}{at}{doors}", known) for one in each)


def open_kinds(found: Found) -> set[str]:
    """What won, as the table names it; two forms in one are no kind of their own."""
    return {
        f"{what}: {kind}" for what, counted in found.wins.items() for kind, count in counted.items() if count
    }


def surprises(found: Found) -> list[str]:
    """What won, and is not known."""
    return sorted(one for one in open_kinds(found) if not is_known(*one.split(": ", 1)))


def mended(found: Found) -> list[str]:
    """What is known, was tried, and did not win."""
    won = open_kinds(found)
    return sorted(
        one for one in KNOWN if is_tried(one, found.visited) and not any(_fits(one, other) for other in won)
    )


def is_tried(known: str, visited: Iterable[str]) -> bool:
    """Whether a case of that kind was tried at one of its doors."""
    return any(fnmatch.fnmatchcase(one, known.split(": ", 1)[1]) for one in visited)


def planned(family: str) -> Iterator[tuple[World, Chosen]]:
    """The cases of one family that `make test` tries."""
    return plan(SEED, SIZE.get(family, OTHERS), families=[family], every=EVERY)


async def sample(family: str) -> Found:
    """What came of them."""
    return await besiege(planned(family))


def count_visits(family: str) -> Counter[str]:
    """Cases of a family's sample by kind and door."""
    return Counter(
        f"{case.kind} at {door}" for _, chosen in planned(family) for case, doors in chosen for door in doors
    )


def take_out(samples: Iterable[Found]) -> list[str]:
    """Write the table without what is mended; gives that."""
    gone = {one for found in samples for one in mended(found)}
    told = {
        why: [kind for kind in KNOWN if KNOWN[kind] == why and kind not in gone] for why in KNOWN.values()
    }
    kept = {why: kinds for why, kinds in told.items() if kinds}
    FILE.write_text(yaml.safe_dump(kept, sort_keys=False, width=110, allow_unicode=True) if kept else "{}\n")
    return sorted(gone)
