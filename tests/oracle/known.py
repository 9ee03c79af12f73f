"""Kinds of cases that still win, in `known.yaml`: each with its reason, until it is mended.

The sample of `make test` holds them strictly: what wins and is not known fails, and so does what is known and
wins no longer. `python tests/oracle/run.py --mended` takes the latter out.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path

import yaml
from cases import worlds
from siege import Found, besiege

__all__ = ["KNOWN", "find_kinds", "is_known", "mended", "open_kinds", "sample", "surprises", "take_out"]

FILE = Path(__file__).parent / "known.yaml"
SEED = 1
SIZE = {"denied": 1800, "asked": 1200, "allowed": 1200, "approved": 1200, "repeated": 700, "pooled": 400}
"""Cases of a sample."""
OTHERS = 250
"""Those of other families."""


def _read() -> Mapping[str, str]:
    told = yaml.safe_load(FILE.read_text()) or {}
    return {kind: why for why, kinds in told.items() for kind in kinds}


KNOWN: Mapping[str, str] = _read()
"""What wins (`let through: policy denies: list`), and why."""


def is_known(what: str, kind: str) -> bool:
    """Whether a kind is known to win so; of two forms in one, either is enough."""
    family, _, forms = kind.partition(": ")
    return any(f"{what}: {family}: {form}" in KNOWN for form in (forms, *forms.split(" + ")))


def open_kinds(found: Found) -> set[str]:
    """What won, as the table names it; two forms in one are no kind of their own."""
    counts = {"let through": found.let_through, "false alarm": found.refused, "unread": found.unread}
    return {f"{what}: {kind}" for what, counted in counts.items() for kind, count in counted.items() if count}


def surprises(found: Found) -> list[str]:
    """What won, and is not known."""
    return sorted(one for one in open_kinds(found) if not is_known(*one.split(": ", 1)))


def mended(found: Found) -> list[str]:
    """What is known, was tried, and did not win."""
    tried = {f"{what}: {kind}" for what in ("let through", "false alarm", "unread") for kind in found.cases}
    return sorted((KNOWN.keys() & tried) - open_kinds(found))


async def sample(family: str) -> Found:
    """The cases of one family that `make test` tries."""
    return await besiege(SEED, SIZE.get(family, OTHERS), families=[family])


def find_kinds(family: str) -> set[str]:
    """The kinds of cases that its sample holds."""
    cases = (case.kind for world in worlds(SEED, [family]) for case in world.cases)
    return set(islice(cases, SIZE.get(family, OTHERS)))


def take_out(samples: Iterable[Found]) -> list[str]:
    """Write the table without what is mended; gives that."""
    gone = {one for found in samples for one in mended(found)}
    told = {
        why: [kind for kind in KNOWN if KNOWN[kind] == why and kind not in gone] for why in KNOWN.values()
    }
    kept = {why: kinds for why, kinds in told.items() if kinds}
    FILE.write_text(yaml.safe_dump(kept, sort_keys=False, width=110, allow_unicode=True) if kept else "{}\n")
    return sorted(gone)
