"""Runs a call that was ruled on, and stops what an LLM calls below it where nobody was asked.

A sub-agent without the middleware runs its tools by itself; LangChain tells whoever listens above of each
tool that starts, with the id of the LLM's call where there is one. What code calls has none, and passes. The
id is the LLM's word: a call was ruled on if tool, arguments and the run that it belongs to are the same, too.
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
    """LangChain's id of the run that makes it."""

    def is_told(self, tool: Any, arguments: Any, run: Any, id_: str) -> bool:
        """Whether it is this one that starts; LangChain may have put in arguments of its own."""
        if (self.id, self.tool, self.run) != (id_, tool, run):
            return False
        if not isinstance(arguments, Mapping):
            return not self.arguments
        return same_json(dict(self.arguments), {name: arguments.get(name) for name in self.arguments})


_RULED: Final[ContextVar[tuple[RuledCall, ...]]] = ContextVar("toolgate_langchain_ruled", default=())


class RulelessCalls(BaseCallbackHandler):  # type: ignore[misc] # Any where LangChain is not installed
    """Raises for those; inline, so that no tool begins before it is heard."""

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
        """See BaseCallbackHandler. Raises ConfigError."""
        if tool_call_id is None:
            return
        tool = (serialized or {}).get("name")
        if not any(one.is_told(tool, inputs, parent_run_id, tool_call_id) for one in _RULED.get()):
            raise ConfigError(BARE)


_NET: Final = RulelessCalls()


@contextmanager
def run_below_net(ruling: Ruling, config: Mapping[str, Any]) -> Iterator[None]:
    """Inside, the call runs; what it raises is its failure. `config` is what it runs with."""
    above: Any = config.get("callbacks")
    if hasattr(above, "add_handler") and _NET not in above.inheritable_handlers:
        above.add_handler(_NET, inherit=True)
    with ruling, enter_tool(ruling.at):
        run = getattr(above, "parent_run_id", None)
        one = RuledCall(ruling.call.id, ruling.tool, copy_arguments(ruling.arguments), run)
        token = _RULED.set((*_RULED.get(), one))
        try:
            yield
        except GraphInterrupt:  # the tool asks somebody itself: it runs anew once that is answered
            ruling.release()
            raise
        finally:
            _RULED.reset(token)
