"""`toolgate budget`: show spent and reserved money by account, set limits by hand, set accounts to zero."""

import difflib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Annotated, Any, Final, NamedTuple

import typer

from toolgate_bus.commands.ledger_loss import accept_loss, rebuild
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import (
    JsonOption,
    NamespaceOption,
    RedisOption,
    console,
    err_console,
    find_user,
    join_bus,
    run_async,
)
from toolgate_bus.commands.table import Table
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.errors import ConfigError
from toolgate_bus.fleet.books import Book, BookAccount
from toolgate_bus.fleet.reader import read_book
from toolgate_bus.ledger.money.epoch import WHY
from toolgate_bus.ledger.money.limits import Limits
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.money import format_amount, micro
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.telemetry.printable import visible
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.reads import read_hashes
from toolgate_bus.transport.redis.storage.store import RedisStore

OVERVIEW = """
Set budgets, and see what was spent.

The configuration of a cost-aware scheduler defines the budgets. These commands
show them, and change them while it runs.

\b
  toolgate budget list                     what is spent, reserved and left
  toolgate budget list anna                accounts whose name contains anna
  toolgate budget show daily               which decisions hold money
  toolgate budget set daily 12.50          within a second, until `reset`
  toolgate budget set daily/agent/anna 2   one account of it alone
  toolgate budget reset daily              nothing spent, limit as configured

If a ledger was emptied, or lost what it had confirmed, calls that cost money are
denied until somebody decides:

\b
  toolgate budget rebuild --from DIR       add the spending of an archive
  toolgate budget accept-loss --by NAME    go on with the books as they are
"""

app = typer.Typer(name="budget", help=OVERVIEW, no_args_is_help=True)
app.command("rebuild")(rebuild)
app.command("accept-loss")(accept_loss)

_MAX_ACCOUNTS: Final = 1024
MAX_NEAR: Final = 3
"""Maximum number of accounts that are proposed in place of a mistyped one."""
UNTIL: Final = (
    "Calls that cost money are denied until `toolgate budget rebuild` has added the spending that a record "
    "shows, or until `toolgate budget accept-loss`."
)
_COLUMNS: Final = ("budget", "whose", "window", "limit", "spent", "reserved", "left", "notes")
_ASTRAY: Final[Mapping[str, str]] = {
    "charged": "costs came from calls without a reservation: the fleet's budgets paid them.",
    "unplaced": "costs came from calls without a reservation, and the fleet has no budget to pay them.",
    "foreign": "facts were about decisions of another orchestrator: they settled and released nothing.",
}
_MONEY: Final = ("limit", "spent", "reserved", "left")

KeyArgument = Annotated[
    str, typer.Argument(metavar="BUDGET", help="A budget (daily), or one account of it (daily/agent/anna).")
]
BookOption = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Ledger to use: budget, budget-shadow (rehearsals), budget-hooks (hook modules)."
    ),
]


class _OpenBook(NamedTuple):
    """One ledger, and its book as it was read."""

    commands: RedisCommands
    namespace: str
    ledger: RedisLedger
    limits: Limits
    book: Book

    def accounts(self, key: str | None = None, *, part: str = "", past: bool = False) -> list[dict[str, Any]]:
        """Return one account, those of a budget, or all, as objects. `past` adds those of past windows.

        `part` is a text that their names contain.
        """
        accounts = self.book.accounts(time.time(), past=past)
        return [
            self._describe(one) for one in accounts if key in (None, one.key, one.name) and part in one.key
        ]

    def check(self, key: str) -> None:
        """Raise ConfigError for a key that is neither a budget nor can be an account of one."""
        name = _name(key)
        names = {*self.book.budgets, *(_name(one.key) for one in self.book.balances)}
        if name not in names:
            there = ", ".join(sorted(names)) or "none; a cost-aware scheduler with budgets makes them"
            raise ConfigError(f"there is no budget {name!r}; there are: {there}")
        if key == name or name not in self.book.budgets:
            return
        level = self.book.budgets[name].level
        prefix = f"{name}/{level}"
        if key != prefix if level == "fleet" else not key.startswith(f"{prefix}/"):
            form = prefix if level == "fleet" else f"{prefix}/NAME"
            raise ConfigError(f"{key!r} is no account of the budget {name}: its accounts are named {form}")

    def check_known(self, key: str) -> None:
        """Raise ConfigError for an account without spending or limit, and name those that are like it."""
        known = {*self.book.budgets, *self.book.overrides}
        known.update(*((one.key, _name(one.key)) for one in self.book.balances))
        if key in known:
            return
        near = difflib.get_close_matches(key, known, MAX_NEAR)
        like = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ConfigError(
            f"no call has used the account {key!r} yet.{like} `toolgate budget list` shows the accounts; "
            "`toolgate budget set ACCOUNT LIMIT --new` sets the limit of a new one"
        )

    def currency(self, key: str) -> str:
        """Return the currency of a budget's amounts; empty if the budget is unknown."""
        budget = self.book.budgets.get(_name(key))
        return budget.currency if budget else ""

    def _describe(self, account: BookAccount) -> dict[str, Any]:
        one, budget = account.balance, account.budget
        window = "window" if one.window else "total"
        return {
            "account": account.key,
            "budget": account.name,
            "whose": account.key.partition("/")[2],
            "window": budget.window_words if budget else window,
            "window_number": one.window,
            "currency": self.currency(account.key),
            "limit": account.limit,
            "limit_set": account.is_set,
            "spent": one.spent,
            "reserved": one.reserved,
            "left": account.left,
            "overruns": one.overruns,
            "orphans": one.orphans,
        }


@app.command("list")
def list_(
    part: Annotated[
        str,
        typer.Argument(
            metavar="[TEXT]",
            help="Only accounts whose name contains this text: a budget, an agent, a session, a label.",
            show_default=False,
        ),
    ] = "",
    past: Annotated[bool, typer.Option("--past", help="Show past hours and days, too.")] = False,
    book: BookOption = "budget",
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    json_: JsonOption = False,
) -> None:
    """Show every account: budget, whose, window, limit, spent, reserved, left.

    With --json, amounts are whole millionths of the currency. Stderr has the number
    of costs without a reservation (the server lost it, or the call ran unasked), and
    of facts about another orchestrator's decisions.

    \b
      toolgate budget list
      toolgate budget list daily                one budget
      toolgate budget list session/4f2a         ids that begin so
      toolgate budget list --past --json
      toolgate budget list --book budget-shadow   what a shadow would have spent
    """

    async def work(book: _OpenBook) -> None:
        accounts = book.accounts(part=part, past=past)
        if json_:
            for one in accounts:
                print_json(one)
        elif accounts:
            console.print(_table(accounts))
        elif part:
            err_console.print(f"No account's name contains {escape(part)}. `toolgate budget list` shows all.")
        else:
            err_console.print("Nothing was spent yet. Budgets are configured in a cost-aware scheduler.")
        if loss := book.book.loss:
            err_console.print(f"The ledger was lost: {WHY[loss.why]}. {UNTIL}", soft_wrap=True)
        for outcome, many in (await book.ledger.astray()).items():
            err_console.print(f"{many} {_ASTRAY[outcome]}", soft_wrap=True)

    _on_book(redis, namespace, book, work)


@app.command()
def show(
    key: KeyArgument,
    book: BookOption = "budget",
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    json_: JsonOption = False,
) -> None:
    """Show the accounts of one budget, and which decisions hold money in them.

    \b
      toolgate budget show daily
      toolgate budget show daily/agent/anna --json
    """

    async def work(book: _OpenBook) -> None:
        book.check(key)
        accounts = book.accounts(key)
        held = await _list_holders(book, key)
        if json_:
            for one in accounts:
                print_json({**one, "held": [h for h in held if one["account"] in h["accounts"]]})
            return
        console.print(_table(accounts) if accounts else f"Nothing was spent from {escape(key)} yet.")
        for one in held:
            state = "runs" if one["executing"] else "is decided"
            console.print(
                f"  {escape(one['decision'])}  {escape(one['tool'])} "
                f"{format_amount(one['amount'], book.currency(key))}  "
                f"{state} since {one['age_s']:.1f} s  orchestrator {escape(one['owner'])}",
                soft_wrap=True,
            )

    _on_book(redis, namespace, book, work)


@app.command("set")
def set_(
    key: KeyArgument,
    limit: Annotated[
        str | None,
        typer.Argument(metavar="LIMIT", help="Limit in the currency, such as 12.50; none only counts."),
    ] = None,
    configured: Annotated[
        bool, typer.Option("--configured", help="Use the limit of the configuration again.")
    ] = False,
    new: Annotated[
        bool, typer.Option("--new", help="Also for an account that no call has used yet.")
    ] = False,
    book: BookOption = "budget",
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    json_: JsonOption = False,
) -> None:
    """Set the limit of a budget or account. Within a second it replaces the configured one, until reset.

    \b
      toolgate budget set daily 12.50
      toolgate budget set daily/agent/anna 2
      toolgate budget set daily/agent/ben 2 --new   before ben's first call
      toolgate budget set daily none                only count
      toolgate budget set daily --configured        use the configured limit again

    An account that no call has used yet is refused without --new: its name may be mistyped.
    """
    amount = _limit(limit, configured)

    async def work(book: _OpenBook) -> None:
        book.check(key)
        if not new:
            book.check_known(key)
        if configured:
            await book.limits.drop(key)
        else:
            await book.limits.put(key, amount)
        told = {"budget": key, "limit": amount, "configured": configured}
        words = "uses the configured limit" if configured else _money(amount, book.currency(key))
        _say(told, f"{key}: {words}", json_)

    _on_book(redis, namespace, book, work)


@app.command()
def reset(
    key: KeyArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    book: BookOption = "budget",
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    json_: JsonOption = False,
) -> None:
    """Set the spent amount to zero, and use the configured limit again. Reservations stay.

    \b
      toolgate budget reset daily
      toolgate budget reset daily/agent/anna --yes
    """
    if not yes:
        typer.confirm(f"Set the spent amount of {visible(key)} to zero?", abort=True, err=True)

    async def work(book: _OpenBook) -> None:
        book.check(key)
        book.check_known(key)
        keys = sorted({one.key for one in book.book.balances if key in (one.key, _name(one.key))})
        accounts = sum([await book.ledger.reset(one, find_user()) for one in keys])
        await book.limits.drop(key)
        _say({"budget": key, "accounts": accounts}, f"{key}: {accounts} accounts set to zero", json_)

    _on_book(redis, namespace, book, work)


# ---------------------------------------------------------------------- reading


def _on_book(
    redis: str | None, namespace: str, name: str, work: Callable[[_OpenBook], Awaitable[None]]
) -> None:
    async def open_book(settings: BusSettings) -> None:
        async with aclosing(RedisCommands(str(settings.redis), "toolgate-budget", connections=1)) as commands:
            ledger = RedisLedger(commands, settings.namespace, name)
            limits = Limits(RedisStore(commands, settings.namespace), name)
            book = await read_book(commands, settings.namespace, name)
            await work(_OpenBook(commands, settings.namespace, ledger, limits, book))

    with join_bus(redis, namespace, None) as settings:
        run_async(lambda: open_book(settings))


async def _list_holders(book: _OpenBook, key: str) -> list[dict[str, Any]]:
    """Return the decisions that hold money in these accounts (records: `ledger.lua`)."""
    prefix = Keys(book.namespace).store_key(book.book.name)
    held = await book.ledger.open()
    records = await read_hashes(book.commands, [f"{prefix}:r:{one.decision}" for one in held])
    rows: list[dict[str, Any]] = [
        {
            "decision": one.decision,
            "tool": record.get("name", ""),
            "amount": _whole(record.get("amount")),
            "owner": one.owner,
            "age_s": round(one.age_s, 3),
            "executing": one.executing,
            "accounts": [
                record.get(f"k{number}", "").rpartition(":")[0]
                for number in range(1, min(_whole(record.get("n")), _MAX_ACCOUNTS) + 1)
            ],
        }
        for one, record in zip(held, records, strict=True)
    ]
    return [row for row in rows if any(key in (one, _name(one)) for one in row["accounts"])]


def _whole(text: str | None) -> int:
    """Return a number of a record, or 0 if the text is not a number."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 20 else 0


def _limit(limit: str | None, configured: bool) -> int | None:
    if configured == (limit is not None):
        raise ConfigError("give a LIMIT (an amount, or none), or --configured")
    if limit is None or limit == "none":
        return None
    amount = micro(limit)
    if amount is None:
        raise ConfigError(f"LIMIT: must be an amount of money such as 12.50, or none, not {limit!r}")
    return amount


def _name(key: str) -> str:
    return key.partition("/")[0]


# ---------------------------------------------------------------------- showing


def _table(accounts: Iterable[dict[str, Any]]) -> Table:
    spare = ("window", "notes", "reserved", "limit")
    table = Table(_COLUMNS, right=_MONEY, cut={"budget", "whose"}, spare=spare)
    for one in accounts:
        notes = ["limit set by hand"] if one["limit_set"] else []
        notes += [f"{one['overruns']} overruns"] if one["overruns"] else []
        notes += [f"{one['orphans']} orphans"] if one["orphans"] else []
        money = [_money(one[name], one["currency"]) for name in _MONEY]
        table.add_row(
            escape(one["budget"]),
            escape(one["whose"]),
            escape(one["window"]),
            *money,
            escape(", ".join(notes)),
        )
    return table


def _money(amount: int | None, currency: str) -> str:
    return "none" if amount is None else escape(format_amount(amount, currency))


def _say(fields: dict[str, Any], words: str, as_json: bool) -> None:
    if as_json:
        print_json(fields)
    else:
        console.print(escape(words), soft_wrap=True)
