"""Find the part of an account's spending that went to LLMs, by model: join the ledger's journal to facts.

The journal has the exact amounts, and mostly the tool; the facts of the decision or the request name the
model. Facts are kept for an hour, so the models of older requests are not known. All data here are bounded,
and nothing is changed; `budgets` reads the accounts themselves.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from toolgate_bus.ledger.money.journal import Entry, JournalCursor, read_journal
from toolgate_bus.telemetry.printable import shorten
from toolgate_bus.transport.ports import Commands

LLM_REQUEST: Final = "llm:request"
CHARGE: Final = "usage-"
"""Beginning of the id of an entry that pays for a request without a reservation."""
MAX_PLACES: Final = 20_000
"""Maximum number of accounts and windows that are kept; those touched longest ago are dropped."""
MAX_CALLS: Final = 20_000
MAX_MODELS: Final = 50
MAX_PAGES: Final = 20
"""Maximum number of pages of the journal that one look reads."""
NAME: Final = 128
NOT_KNOWN: Final = ""
OTHER: Final = "(others)"

Place = tuple[str, int]
"""Account, and number of its window."""


class PaidPart(NamedTuple):
    """Part of an entry's payment whose purpose is not known yet."""

    place: Place
    amount: int
    for_llm: bool


@dataclass(slots=True)
class PlaceSums:
    """Sums of one account in one window from the journal, in micro-units."""

    total: int = 0
    llm: int = 0
    models: dict[str, int] = field(default_factory=dict)

    def add_model(self, name: str, amount: int) -> None:
        """Add an amount to a model; beyond `MAX_MODELS`, to the others."""
        if name not in self.models and len(self.models) >= MAX_MODELS:
            name = OTHER
        self.models[name] = self.models.get(name, 0) + amount


class LlmSpend:
    """Spending of one book by model, as far as it is known."""

    def __init__(self) -> None:
        self._sums: OrderedDict[Place, PlaceSums] = OrderedDict()
        self._models: OrderedDict[str, str] = OrderedDict()
        self._open: OrderedDict[str, list[PaidPart]] = OrderedDict()

    def learn(self, fact: Mapping[str, Any]) -> None:
        """Learn the model of a request from a fact; facts may hold anything."""
        model = _model_of(fact)
        for id_ in _ids_of(fact) if model else ():
            self._models.setdefault(id_, model)
            _trim(self._models, MAX_CALLS)
            for part in self._open.pop(id_, ()):
                self._move(part, self._models.get(id_, model))

    def take(self, entry: Entry) -> None:
        """Add an entry of the journal."""
        id_, tool, amount = entry["id"], entry.get("tool") or "", entry["amount"]
        model = self._models.get(id_)
        for_llm = tool == LLM_REQUEST or id_.startswith(CHARGE) or (not tool and model is not None)
        for key, window in entry["accounts"]:
            sums = self._sums.setdefault((key, window), PlaceSums())
            self._sums.move_to_end((key, window))
            sums.total += amount
            if for_llm:
                sums.llm += amount
                sums.add_model(model or NOT_KNOWN, amount)
            if model is None and (for_llm or not tool):
                self._open.setdefault(id_, []).append(PaidPart((key, window), amount, for_llm))
        _trim(self._sums, MAX_PLACES)
        _trim(self._open, MAX_CALLS)

    def of(self, key: str, window: int) -> PlaceSums:
        """Return the sums of an account."""
        return self._sums.get((key, window), PlaceSums())

    def _move(self, part: PaidPart, model: str) -> None:
        sums = self._sums.get(part.place)
        if sums is None:
            return
        if not part.for_llm:
            sums.llm += part.amount
        else:
            was = NOT_KNOWN if NOT_KNOWN in sums.models else OTHER
            left = sums.models.pop(was, part.amount) - part.amount
            if left:
                sums.models[was] = left
        sums.add_model(model, part.amount)


class SpendReader:
    """Reader that follows one book's journal."""

    def __init__(self, commands: Commands, namespace: str, book: str) -> None:
        self._commands, self._namespace, self._book = commands, namespace, book
        self._place: JournalCursor | None = None
        self.spend = LlmSpend()

    async def read(self) -> bool:
        """Read on; False if one look cannot read all, or if reading is refused.

        Raise TransportError.
        """
        for _ in range(MAX_PAGES):
            page = await read_journal(self._commands, self._namespace, self._book, self._place)
            self._place = page.place
            for entry in page.entries:
                self.spend.take(entry)
            if page.whole:
                return not page.refused
        return False


def _model_of(fact: Mapping[str, Any]) -> str:
    """Return `provider/model` of a fact about a request to an LLM; empty for others."""
    told: Mapping[str, Any] = {}
    if fact.get("event") == "usage":
        told = fact
    elif fact.get("event") == "decision" and fact.get("tool_name") == LLM_REQUEST:
        parts = (fact.get("tool_input"), fact.get("final_input"))
        told = {name: value for part in parts if isinstance(part, Mapping) for name, value in part.items()}
    names = [one for one in (told.get("provider"), told.get("model")) if isinstance(one, str) and one]
    return shorten("/".join(names), NAME)


def _ids_of(fact: Mapping[str, Any]) -> list[str]:
    if fact.get("event") == "decision":
        ids = [fact.get("id")]
    else:
        ids = [fact.get("decision_id"), f"{CHARGE}{fact.get('orchestrator')}-{fact.get('seq')}"]
    return [one for one in ids if isinstance(one, str) and 0 < len(one) <= NAME]


def _trim(kept: OrderedDict[Any, Any], most: int) -> None:
    while len(kept) > most:
        kept.popitem(last=False)
