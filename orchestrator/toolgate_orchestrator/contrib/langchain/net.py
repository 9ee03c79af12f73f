"""Runs a call that was ruled on, and stops calls of an ungated agent below it.

A sub-agent without the middleware runs its tools by itself. LangChain tells callbacks above it of each tool
that starts, with the id of the LLM's call if there is one. Calls that code makes have no id, and pass. Since
an LLM can choose the id, tool, arguments and run must also match those of a call that was ruled on.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from langchain_core.callbacks import BaseCallbackHandler
from langgraph.errors import GraphInterrupt
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.json_values import same_json

from toolgate_orchestrator.decision.question.plain_values import copy_arguments
from toolgate_orchestrator.guard.callers import enter_tool
from toolgate_orchestrator.guard.ruling import Ruling

BARE: Final = "an agent below a gated one calls a tool without ToolgateMiddleware: give that agent one, too"


class RuledCall(NamedTuple):
    """A call that may run here."""

    id: str
    tool: str
    arguments: Mapping[str, Any]
    run: Any
    """LangChain's id of the run that makes the call."""

    def is_told(self, tool: Any, arguments: Any, run: Any, id_: str) -> bool:
        """Return whether the tool that starts is this call. LangChain may have added arguments of its own."""
        if (self.id, self.tool, self.run) != (id_, tool, run):
            return False
        if not isinstance(arguments, Mapping):
            return not self.arguments
        return same_json(dict(self.arguments), {name: arguments.get(name) for name in self.arguments})


_RULED: Final[ContextVar[tuple[RuledCall, ...]]] = ContextVar("toolgate_langchain_ruled", default=())


class RulelessCalls(BaseCallbackHandler):  # type: ignore[misc] # Any where LangChain is not installed
    """Callback that raises for calls without a ruling. It runs inline, so that no tool starts before it."""

    raise_error = run_inline = True

    def on_tool_start(
        self,
        serialized: Any,
        *_: Any,
        parent_run_id: Any = None,
        inputs: Any = None,
        tool_call_id: str | None = None,
        **__: Any,
    ) -> None:
        """See BaseCallbackHandler. Raise ConfigError for a call without a ruling."""
        if tool_call_id is None:
            return
        tool = (serialized or {}).get("name")
        if not any(one.is_told(tool, inputs, parent_run_id, tool_call_id) for one in _RULED.get()):
            raise ConfigError(BARE)


_NET: Final = RulelessCalls()


@contextmanager
def run_below_net(ruling: Ruling, config: Mapping[str, Any]) -> Iterator[None]:
    """Run the call in this context; an exception inside is the call's failure. `config` is that of the
    call."""
    above: Any = config.get("callbacks")
    if hasattr(above, "add_handler") and _NET not in above.inheritable_handlers:
        above.add_handler(_NET, inherit=True)
    with ruling, enter_tool(ruling.at):
        run = getattr(above, "parent_run_id", None)
        one = RuledCall(ruling.call.id, ruling.tool, copy_arguments(ruling.arguments), run)
        token = _RULED.set((*_RULED.get(), one))
        try:
            yield
        except GraphInterrupt:  # the tool itself asks a person, and runs again after the answer
            ruling.release()
            raise
        finally:
            _RULED.reset(token)
