"""Finds the framework of an agent object, the check for it, and the tools of the agent."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.contrib.gap import FoundTool, Gap

CHECKS: Final[Mapping[str, str]] = {
    "agent_framework": "agent_framework",
    "agents": "openai_agents",
    "claude_agent_sdk": "claude_agent",
    "crewai": "crewai",
    "google.adk": "google_adk",
    "langchain": "langchain",
    "langgraph": "langchain",
    "pydantic_ai": "pydantic_ai",
    "strands": "strands",
}
"""Name of the folder in `contrib`, by the package of an object's class or of a base class."""
TITLES: Final = {
    "agent_framework": "Microsoft Agent Framework",
    "claude_agent": "Claude Agent SDK",
    "crewai": "CrewAI",
    "google_adk": "Google ADK",
    "langchain": "LangChain, LangGraph",
    "openai_agents": "OpenAI Agents SDK",
    "pydantic_ai": "pydantic-ai",
    "strands": "Strands Agents",
}


def find_gaps(found: Any) -> tuple[str, list[Gap]]:
    """Return the framework's title and the gaps. Raise ConfigError for an object that no check knows."""
    title, check = _find_check(found)
    return title, list(check.find_gaps(found))


def list_tools(found: Any) -> tuple[str, list[FoundTool]]:
    """Return the framework's title and all tools. Raise ConfigError if Toolgate cannot list them."""
    title, check = _find_check(found)
    if not hasattr(check, "list_tools"):
        raise ConfigError(f"{title}: Toolgate lists the tools of LangChain and LangGraph only")
    return title, list(check.list_tools(found))


def _find_check(found: Any) -> tuple[str, Any]:
    names = [_check_of(kind.__module__) for kind in type(found).__mro__]
    name = next(filter(None, names), None)
    if name is None:
        known = ", ".join(sorted(TITLES.values()))
        raise ConfigError(
            f"cannot check a {type(found).__qualname__} of {type(found).__module__}; "
            f"supported frameworks: {known}"
        )
    check = _load(name)
    if not isinstance(found, check.TAKES):
        wanted = ", ".join(kind.__name__ for kind in check.TAKES)
        raise ConfigError(f"{TITLES[name]}: name one of {wanted}; this is a {type(found).__name__}")
    return TITLES[name], check


def _check_of(module: str) -> str | None:
    return next((name for package, name in CHECKS.items() if f"{module}.".startswith(f"{package}.")), None)


def _load(name: str) -> Any:
    return import_module(f"toolgate_orchestrator.contrib.{name}.check")
