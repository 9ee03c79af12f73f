"""The second act: a team of agents, what each of their scripted LLMs does, and what is to come of it. Pure.

The lead delegates three times: work that is too small for whom it asks, work in which an agent of an
agent tries what the lead may not do, and work that has no end.
"""

from collections.abc import Mapping
from typing import Any, Final

LEAD: Final = "lead"
WATCHER: Final = "watcher"
REPORT: Final = "reports/summary.txt"
FIRST_CALLS: Final = 3
"""So many calls of the watcher are shown; then an operator looks."""
TEAM_PROMPT: Final = "Count the paid invoices, clear the reports, and tell me when an invoice comes in."
TEAM_ANSWER: Final = (
    "One invoice is paid: 1019. The report is still there: it is not ours to delete. "
    "Nobody watches the folder any more: watcher was stopped."
)
TEAM: Final[Mapping[str, str]] = {
    LEAD: "talks with the user, and has the others do the work",
    "senior": "does what is difficult",
    "junior": "does what is simple, at a tenth of the price",
    "cleaner": "deletes files; works for senior",
    WATCHER: "looks into the invoices folder, again and again",
}
"""Who is there, and what for."""

SCENES: Final = (
    "Routed: the lead asks for senior, and the router knows who is enough for it",
    "Vetoed: what the lead may not do, nobody does for it",
    "Stopped: work that has no end",
)
"""What each of the lead's delegations shows."""

_PACE_S: Final = 0.15
_WITHOUT_END: Final = 1_000
"""More calls than anybody waits for."""


def lead_script() -> list[dict[str, Any]]:
    """What the lead's LLM says."""
    return [
        _call("delegate", agent="senior", instruction="Count the paid invoices."),
        _call("delegate", agent="senior", instruction="Have the old reports cleared."),
        _call("delegate", agent=WATCHER, instruction="Watch the folder, and tell when an invoice comes in."),
        {"text": TEAM_ANSWER},
    ]


def agents() -> dict[str, dict[str, Any]]:
    """The plan's `agents:`: partial mount plans, each with its own LLM."""
    scripts: dict[str, list[dict[str, Any]]] = {
        "senior": [
            _call("delegate", agent="cleaner", instruction=f"Delete {REPORT}."),
            {"text": f"{REPORT} is still there: it may not be deleted."},
        ],
        "junior": [
            _call("quick_search", words="paid", within="invoices"),
            {"text": "One is paid: ${last_result}"},
        ],
        "cleaner": [_call("delete_file", path=REPORT), {"text": "I could not. ${last_result}"}],
        WATCHER: [_call("list_files", folder="invoices")] * _WITHOUT_END,
    }
    paces = {WATCHER: _PACE_S}
    return {
        name: {
            "description": TEAM[name],
            "providers": [
                {"module": "provider-scripted", "config": {"turns": turns, "pace_s": paces.get(name, 0.0)}}
            ],
        }
        for name, turns in scripts.items()
    }


def _call(tool: str, **arguments: str) -> dict[str, Any]:
    return {"tool_calls": [{"name": tool, "arguments": arguments}]}
