"""What the demo consists of: files to work on, the first act's script, three schedulers for both acts.

Pure but for `lay_out`, which writes the files. The third scheduler is written here as its author
would: a Python file in a folder, run by `toolgate scheduler run house_rules:archivist`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolgate_bus.protocol.events import Decision, ReceivedVerdict

from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec

PROMPT: Final = "Add up the unpaid invoices, write a summary, then clear the invoices folder."

INVOICES: Final = {
    "2026-03-acme.txt": "Invoice 1017, Acme Ltd, 120.50 EUR, unpaid\n",
    "2026-04-borealis.txt": "Invoice 1018, Borealis, 89.90 EUR, unpaid\n",
    "2026-04-cedar.txt": "Invoice 1019, Cedar Inc, 310.00 EUR, paid on 2 May\n",
    "2026-05-delta.txt": "Invoice 1020, Delta, 240.00 EUR, unpaid\n",
}
SUMMARY: Final = "Unpaid invoices: 1017, 1018, 1020. Total: 450.40 EUR."
ANSWER: Final = (
    "Three invoices are unpaid, 450.40 EUR in all: Acme 120.50, Borealis 89.90, Delta 240.00. "
    "The summary is in reports/summary.txt. I did not clear the folder: originals must be kept."
)

POLICY: Final = """\
rules:
  - name: keep originals
    tools: delete_file
    when: {path: "invoices/*"}
    action: deny
    reason: invoices must be kept for ten years
  - name: reports stay
    tools: delete_file
    agents: lead
    when: {path: "reports/*"}
    action: deny
    reason: the lead may not delete reports
"""
ROUTES: Final = """\
routes:
  - from: search_files
    to: quick_search
    arguments: {words: $.pattern, within: $.folder}
    reason: the index answers faster than reading every file
  - from: delegate
    agent_targets: senior
    when: {instruction: "Count *"}
    to: delegate
    agent: junior
    reason: counting is junior's work, at a tenth of the price
"""
HOUSE_RULES: Final = '''\
"""A scheduler of one's own: files that an agent writes belong in reports/."""

from toolgate_schedulers import Continue, Modify, ToolSelecting, Verdict, scheduler


@scheduler(name="archivist", priority=5)
async def archivist(call: ToolSelecting) -> Verdict:
    path = call.tool_input.get("path", "")
    if call.tool_name == "write_file" and not path.startswith("reports/"):
        moved = {**call.tool_input, "path": f"reports/{path}"}
        return Modify(tool="write_file", arguments=moved, reason="new files belong in reports/")
    return Continue()
'''


@dataclass(frozen=True, slots=True)
class DemoCall:
    """One call of the demo, ruled on and done."""

    decision: Decision
    verdicts: tuple[ReceivedVerdict, ...]
    result: str
    """What the LLM was told."""
    agents: tuple[str, ...] = ()
    """Whose call it was: the agents from the root to its own; empty in the first act."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the demo's files are."""

    workspace: Path
    """What the agent's tools may touch."""
    schedulers: tuple[SchedulerSpec, ...]
    about: Mapping[str, str]
    """What each scheduler is there for, by name."""


def lay_out(directory: Path) -> Layout:
    """Write the agent's files and the schedulers' into an empty directory."""
    workspace, rules = directory / "workspace", directory / "schedulers"
    (workspace / "invoices").mkdir(parents=True)
    rules.mkdir()
    for name, text in INVOICES.items():
        (workspace / "invoices" / name).write_text(text)
    policy, routes = rules / "policy.yaml", rules / "routes.yaml"
    policy.write_text(POLICY)
    routes.write_text(ROUTES)
    (rules / "house_rules.py").write_text(HOUSE_RULES)
    return Layout(
        workspace,
        (
            SchedulerSpec("policy", policy),
            # Of itself the router only looks at what its routes begin at; here it is to speak each time.
            SchedulerSpec("router", routes, tools=("*",)),
            SchedulerSpec("house_rules:archivist", directory=rules),
        ),
        {
            "policy": "shipped; keeps invoices, and the lead from reports",
            "router": "shipped; sends calls to cheaper tools and agents",
            "archivist": "your own, seven lines; moves new files into reports/",
        },
    )


def script() -> list[dict[str, Any]]:
    """What the LLM says, request by request (config of `provider-scripted`)."""
    steps = [
        ("list_files", {"folder": "invoices"}),
        ("search_files", {"pattern": "unpaid", "folder": "invoices"}),
        ("calculate", {"expression": "120.50 + 89.90 + 240.00"}),
        ("write_file", {"path": "summary.txt", "content": SUMMARY}),
        ("delete_file", {"path": "invoices/2026-03-acme.txt"}),
    ]
    calls = [{"tool_calls": [{"name": tool, "arguments": arguments}]} for tool, arguments in steps]
    return [*calls, {"text": ANSWER}]


def next_steps(activate: str) -> str:
    """What to try after the demo; `activate` is the line that puts `toolgate` on PATH, if one is needed."""
    first, again = (f"  {activate}\n", f"{activate} && ") if activate else ("", "")
    return (
        "What to try next, in this terminal:\n"
        f"{first}"
        "  toolgate init sandbox && cd sandbox\n"
        "  toolgate policy test rules.yaml cases.yaml\n"
        "  toolgate scheduler run policy --config rules.yaml\n"
        "That stays, and rules. In another terminal, from this folder:\n"
        f"  {again}cd sandbox\n"
        '  toolgate run "Tidy up" --plan plan.yaml\n'
        "  toolgate decisions"
    )
