"""Mutations of what a report promises: each change once, to the unit, and by whose window."""

from mutation import BUS, Mutant

MUTANTS = (
    Mutant(
        15,
        "a cost that a budget paid is counted again",
        f"{BUS}/commands/report/accounting.py",
        "if any(key in self._paid for key in cost.keys) or self.budget is not None:",
        "if self.budget is not None:",
        "../bus/commands/test_report.py::test_what_a_budget_paid_is_counted_once_whichever_comes_first",
    ),
    Mutant(
        15,
        "an entry counts when it is written, whatever window paid it",
        f"{BUS}/commands/report/period.py",
        "if budget in (None, name) and self.fits(name):",
        "if False:",
        "../bus/commands/test_report.py::test_what_was_reserved_in_a_window_counts_in_it_as_in_the_ledger",
    ),
    Mutant(
        15,
        "an orchestrator writes what reads as the ledger's",
        f"{BUS}/ledger/money/journal.py",
        'if entry.get("event") != LEDGER or any(name in entry for name in _FACT):',
        'if entry.get("event") != LEDGER:',
        "../bus/commands/test_report.py::test_a_forged_entry_is_no_money",
    ),
    Mutant(
        15,
        "entries that were trimmed unread are not missed",
        f"{BUS}/ledger/money/journal.py",
        "missed, number = max(0, size.added - number), size.added",
        "missed, number = 0, size.added",
        "../bus/budgets/test_journal.py::test_each_entry_is_read_once_and_what_was_trimmed_is_counted",
    ),
    Mutant(
        15,
        "what an account could not change by is written as if it had",
        f"{BUS}/ledger/money/lua/ledger.lua",
        "(moved[key] or 0) + one[name] - was",
        "(moved[key] or 0) + amount",
        "../bus/budgets/test_journal.py::test_the_journal_adds_up_to_the_accounts_whatever_becomes_of_a_call",
    ),
)
