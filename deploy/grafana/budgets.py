"""The dashboard "Toolgate budgets": limits, what is reserved and what is spent."""

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as models
from parts import (
    FLEET,
    HALF,
    PROCESS,
    SOURCE,
    Panels,
    Query,
    bars,
    empty_dashboard,
    line,
    number,
    rate,
    rows_of_accounts,
    ruled_share,
)

__all__ = ["budgets"]

CHOSEN = f'{FLEET}, budget=~"$budget"'
FULL = ((0.8, "yellow"), (1, "red"))


def budgets() -> dashboard.Dashboard:
    """All budgets, or those that the variable `budget` names."""
    board = empty_dashboard(
        "toolgate-budgets", "Toolgate budgets", "Amounts are in the unit of each budget."
    ).with_variable(
        dashboard.QueryVariable("budget")
        .label("Budget")
        .datasource(SOURCE)
        .query(f"label_values(toolgate_budget_spent{{{FLEET}}}, budget)")
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
    )
    for panel in (*_glance(), *_amounts(), *_books(), *_lost()):
        board.with_panel(panel)
    return board


def _summed(metric: str, by: str) -> str:
    return f"sum by ({by}) (max without (instance, job) ({metric}{{{CHOSEN}}}))"


def _fleet(metric: str) -> str:
    """Sum of the fleet's budgets, for each unit that they count."""
    of_fleet = f'{{{CHOSEN}, level="fleet"}}'
    amounts = f"max without (instance, job) ({metric}{of_fleet})"
    units = f"max without (instance, job) (toolgate_budget_info{of_fleet})"
    return f"sum by (unit) ({amounts} * on (namespace, book, budget, level) group_left (unit) {units})"


def _spent_in() -> str:
    """Seconds until nothing is left of an account."""
    accounts = "max by (book, budget, level, whose)"
    chosen = f'{CHOSEN}, level!~"session|own-session|tree|argument:.*"'
    left = " - ".join(
        f"{accounts} (toolgate_budget_{one}{{{chosen}}})" for one in ("limit", "spent", "reserved")
    )
    return f"({left}) / ({accounts} (deriv(toolgate_budget_spent{{{chosen}}}[1h])) > 0)"


def _glance() -> Panels:
    return (
        bars(
            "Used",
            "(spent + reserved) / limit of the account of each budget that has used most. "
            "Calls are denied once what is left is less than they cost.",
            Query(
                f"max by (book, budget, level) (toolgate_budget_used_ratio{{{CHOSEN}}})",
                "{{book}} {{budget}} ({{level}})",
            ),
            "percentunit",
            limits=FULL,
        ),
        number(
            "Spent",
            "In the present windows, of budgets of the fleet; others hold the same money once more.",
            Query(_fleet("toolgate_budget_spent"), "{{unit}}"),
            "none",
            span=6,
        ),
        number(
            "Reserved",
            "For calls that have not ended, of budgets of the fleet.",
            Query(_fleet("toolgate_budget_reserved"), "{{unit}}"),
            "none",
            span=6,
        ),
    )


def _lost() -> Panels:
    return (
        line(
            "Ledgers that were lost",
            "1: emptied, another one, or behind what it had confirmed. What costs money is denied until "
            "`toolgate budget rebuild` or `accept-loss`.",
            [Query(f"max by (book) (toolgate_ledger_lost{{{FLEET}}})", "{{book}}")],
            "none",
            span=HALF,
            limits=((0, "green"), (1, "red")),
        ),
        line(
            "Writes that too few replicas had",
            "Of schedulers with `durability`: it was denied. `toolgate doctor` says which replicas follow.",
            [Query(f"sum by (what) (increase(toolgate_short_writes_total{{{PROCESS}}}[5m]))", "{{what}}")],
            "none",
            span=HALF,
        ),
    )


def _amounts() -> Panels:
    each = "book, budget, level"
    return (
        line(
            "Used over time",
            "(spent + reserved) / limit of the account that has used most.",
            [
                Query(
                    f"max by (book, budget, level) (toolgate_budget_used_ratio{{{CHOSEN}}})",
                    "{{budget}} ({{level}})",
                )
            ],
            "percentunit",
            span=HALF,
            limits=FULL,
            most=1,
        ),
        line(
            "Spent by level",
            "Summed over the accounts of each budget; it begins anew with the budget's window.",
            [Query(_summed("toolgate_budget_spent", each), "{{budget}} ({{level}})")],
            "none",
            span=HALF,
        ),
        line(
            "Reserved by level",
            "For calls that have not ended. What stays up here belongs to orchestrators that died: "
            "it is paid as estimated.",
            [Query(_summed("toolgate_budget_reserved", each), "{{budget}} ({{level}})")],
            "none",
            span=HALF,
        ),
        line(
            "Spent in",
            "When nothing will be left, at the pace of the last hour. Sessions and trees are left out.",
            [Query(_spent_in(), "{{budget}} ({{level}}) {{whose}}")],
            "s",
            span=HALF,
            limits=((0, "red"), (4 * 3600, "green")),
        ),
        line(
            "Windows end in",
            "Then a budget begins anew. Those for all time are left out.",
            [
                Query(
                    f"max by ({each}) (toolgate_budget_window_end_timestamp_seconds{{{CHOSEN}}})"
                    " - time() < Inf",
                    "{{budget}} ({{level}})",
                )
            ],
            "s",
            span=HALF,
        ),
        line(
            "Calls that cost-aware denied",
            "Its denies / decisions about which it was asked.",
            [
                Query(
                    ruled_share("toolgate_verdicts_total", 'action="deny"', 'scheduler=~"cost-aware.*"'),
                    "{{scheduler}}",
                )
            ],
            "percentunit",
            span=HALF,
        ),
        rows_of_accounts(
            "Accounts",
            "Whose money: fleet, agents and values of labels (at most a hundred of a budget); sessions and "
            "trees stand summed. `toolgate budget list` shows all.",
            [
                Query(f"max by ({each}, whose) (toolgate_budget_limit{{{CHOSEN}}})", "limit"),
                Query(f"max by ({each}, whose) (toolgate_budget_spent{{{CHOSEN}}})", "spent"),
                Query(f"max by ({each}, whose) (toolgate_budget_reserved{{{CHOSEN}}})", "reserved"),
            ],
            "none",
            ["book", "budget", "level", "whose"],
        ),
    )


def _books() -> Panels:
    def told(metric: str, by: str) -> str:
        return f"sum by ({by}) (rate({metric}{{{PROCESS}}}[$__rate_interval]))"

    return (
        line(
            "Settlements",
            "Each a second, as the ledger's keeper tells on its port. Corrected: cost other than reserved. "
            "Overrun: it cost more. Orphan: paid as estimated, since nobody told the cost.",
            [
                Query(told("toolgate_budget_settlements_total", "outcome"), "{{outcome}}"),
                Query(told("toolgate_budget_overruns_total", "book"), "overrun"),
                Query(told("toolgate_budget_orphans_total", "reason"), "orphan: {{reason}}"),
            ],
            "ops",
            span=HALF,
        ),
        line(
            "Cost saved per hour",
            "By cheaper replacements, by the mean costs that tools told.",
            [Query(f"3600 * {rate('toolgate_saved_cost_total')} / 1e6", "saved")],
            "none",
            span=HALF,
        ),
    )
