"""The demo's job: files to work on, what the LLM says, and three schedulers that rule on it.

Pure but for `lay_out`, which writes the files. The second scheduler is written here as its author
would: a Python file in a folder, run by `toolgate scheduler run house_rules:archivist`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec

PROMPT: Final = "Remind Acme to pay, then tidy up."
INVOICE: Final = "invoices/acme.txt"
REPORT: Final = "reports/summary.txt"
CURRENCY: Final = "EUR"
LIMIT: Final = 300_000
"""Millionths of the currency that the agent may spend: the limit in `BUDGET`."""
AGENT: Final = "agent"

ROLES: Final[Mapping[str, str]] = {
    "policy": "Rules: keep invoices; a person confirms each mail.",
    "archivist": "Seven lines of Python: new files go into reports/.",
    "cost-aware": "A budget of 0.30 EUR; a credit check costs 0.20 EUR.",
    AGENT: "A scripted LLM. Task: remind Acme to pay, tidy up.",
}
"""The role of each process, by name, as the screen shows it."""

POLICY: Final = """\
rules:
  - name: keep originals
    tools: delete_file
    when: {path: "invoices/*"}
    action: deny
    reason: Invoices must be kept for ten years.
  - name: mail leaves the house
    tools: send_mail
    action: ask
    prompt: Send this mail?
"""
BUDGET: Final = """\
currency: EUR
tools:
  credit_check: {cost: 0.20}
budgets:
  - {name: clerk, level: session, limit: 0.30}
"""
HOUSE_RULES: Final = '''\
"""A scheduler of your own: files that an agent writes belong in reports/."""

from toolgate_schedulers import Continue, Modify, ToolSelecting, Verdict, scheduler


@scheduler(name="archivist", priority=5)
async def archivist(call: ToolSelecting) -> Verdict:
    path = call.tool_input.get("path", "")
    if call.tool_name == "write_file" and not path.startswith("reports/"):
        moved = {**call.tool_input, "path": f"reports/{path}"}
        return Modify(tool="write_file", arguments=moved, reason="New files belong in reports/.")
    return Continue()
'''


@dataclass(frozen=True, slots=True)
class Layout:
    """Places of the demo's files, and the schedulers to start."""

    workspace: Path
    """Folder that the agent's tools may touch."""
    schedulers: tuple[SchedulerSpec, ...]


def lay_out(directory: Path) -> Layout:
    """Write the agent's files and the schedulers' into a new directory."""
    workspace, rules = directory / "workspace", directory / "schedulers"
    (workspace / INVOICE).parent.mkdir(parents=True)
    rules.mkdir()
    (workspace / INVOICE).write_text("Invoice 1017, Acme Ltd, 120.50 EUR, unpaid\n")
    policy, budget = rules / "policy.yaml", rules / "budget.yaml"
    policy.write_text(POLICY)
    budget.write_text(BUDGET)
    (rules / "house_rules.py").write_text(HOUSE_RULES)
    return Layout(
        workspace,
        (
            # Each is asked about every call, so that "all three" is true of each.
            SchedulerSpec("policy", policy, tools=("*",)),
            SchedulerSpec("house_rules:archivist", directory=rules, tools=("*",)),
            SchedulerSpec("cost-aware", budget, tools=("*",)),
        ),
    )


def script() -> list[dict[str, Any]]:
    """Return the LLM's answers, request by request (config of `provider-scripted`)."""
    steps: list[tuple[str, dict[str, str]]] = [
        ("write_file", {"path": "summary.txt", "content": "Acme owes 120.50 EUR (invoice 1017)."}),
        ("credit_check", {"company": "Acme"}),
        ("credit_check", {"company": "Borealis"}),
        ("delete_file", {"path": INVOICE}),
        ("send_mail", {"to": "billing@acme.example", "text": "Please pay invoice 1017, 120.50 EUR."}),
    ]
    calls = [{"tool_calls": [{"name": tool, "arguments": arguments}]} for tool, arguments in steps]
    return [*calls, {"text": f"The summary is in {REPORT}. The mail: ${{last_result}}"}]
