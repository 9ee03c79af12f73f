"""`toolgate init --from langgraph`: the tools of an agent become a policy, and lines that gate the agent."""

from collections.abc import Iterable, Mapping
from typing import Final

from toolgate_bus.errors import ConfigError
from toolgate_bus.telemetry.printable import visible

from toolgate_orchestrator.commands.check.frameworks import list_tools
from toolgate_orchestrator.commands.check.target import load_target
from toolgate_orchestrator.commands.init.draft import Action, Draft, DraftRule, quote_glob
from toolgate_orchestrator.commands.init.start import ENFORCE, OBSERVE, Start
from toolgate_orchestrator.commands.init.tool_names import find_word
from toolgate_orchestrator.contrib.gap import FoundTool

HEAD: Final = ("What the agent may do: a rule for each of its tools, by the words in the name of the tool.",)
MAX_TOOL: Final = 200
"""Maximum length of a tool's name, in characters."""
CODE: Final = """\
from toolgate_orchestrator import Guard
from toolgate_orchestrator.contrib.langchain import ToolgateMiddleware

guard = Guard(agent="{agent}")  # add required=["policy"] once you enforce the rules
agent = create_agent(model, tools, middleware=[ToolgateMiddleware(guard)], name="{agent}")
"""
REASONS: Final[Mapping[Action, str]] = {
    "deny": "{tool} takes something away: leave that to a person",
    "ask": "{tool} changes something",
    "allow": "",
}
_NAMELESS: Final = ("LangGraph", "tools", "")
"""Names that LangGraph gives where the author gives none."""


def draft_from_langgraph(target: str) -> Start:
    """Return the files to write for the agent that a target names. Raise ConfigError."""
    _, tools = list_tools(load_target(target))
    return draft_from_tools(tools, target)


def draft_from_tools(tools: Iterable[FoundTool], target: str) -> Start:
    """Return the files to write for these tools. Raise ConfigError if there are none."""
    draft, notes, agents = Draft(HEAD), list[str](), list[str]()
    seen: set[str] = set()
    for agent, tool, is_own in tools:
        if tool in seen:
            continue
        seen.add(tool)
        agents.append(agent)
        if not is_own:
            draft.leave_out(f"tool {tool}", "the model's provider runs it, so no gate sees its calls")
            notes.append(f"The model's provider runs {visible(tool[:MAX_TOOL])}: no gate sees its calls.")
        elif len(tool) > MAX_TOOL:
            draft.leave_out(f"tool {tool}", f"its name has more than {MAX_TOOL} characters")
        else:
            draft.add(_rule_for(tool))
    if not seen:
        raise ConfigError(f"{target}: this agent has no tools")
    if any(rule.action == "ask" for rule in draft.rules):
        notes.append(
            "Some rules ask a person, which needs a checkpointer: without one, such calls are denied."
        )
    named = next((one for one in agents if one.isidentifier() and one not in _NAMELESS), "agent")
    files = {"rules.yaml": draft.rules_text(), "cases.yaml": draft.cases_text()}
    return Start(files, (OBSERVE, ENFORCE), (draft.summary(), *notes), code=CODE.format(agent=named))


def _rule_for(tool: str) -> DraftRule:
    action, word = find_word(tool)
    return DraftRule(
        name=tool,
        tools=(quote_glob(tool),),
        action=action,
        tool=tool,
        reason=REASONS[action].format(tool=tool),
        note=f'its name has the word "{word}"'
        if word
        else "no word in its name says that it changes anything",
    )
