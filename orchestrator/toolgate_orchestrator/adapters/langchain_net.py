"""Runs a call that was ruled on, and stops what an LLM calls below it where nobody was asked.

A sub-agent without the middleware runs its tools by itself; LangChain tells whoever listens above of each
tool that starts, with the id of the LLM's call where there is one. What code calls has none, and passes.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from langchain_core.callbacks import BaseCallbackHandler
from langgraph.errors import GraphInterrupt
from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.guard.context import enter_tool
from toolgate_orchestrator.guard.ruling import Ruling

BARE: Final = "an agent below a gated one calls a tool without ToolgateMiddleware: give that agent one, too"
_RULED: Final[ContextVar[frozenset[str]]] = ContextVar("toolgate_langchain_ruled", default=frozenset())


class RulelessCalls(BaseCallbackHandler):  # type: ignore[misc] # Any where LangChain is not installed
    """Raises for those; inline, so that no tool begins before it is heard."""

    raise_error = run_inline = True

    def on_tool_start(self, *_: Any, tool_call_id: str | None = None, **__: Any) -> None:
        """See BaseCallbackHandler. Raises ConfigError."""
        if tool_call_id is not None and tool_call_id not in _RULED.get():
            raise ConfigError(BARE)


_NET: Final = RulelessCalls()


@contextmanager
def run_below_net(ruling: Ruling, config: Mapping[str, Any]) -> Iterator[None]:
    """Inside, the call runs; what it raises is its failure. `config` is what it runs with."""
    above: Any = config.get("callbacks")
    if hasattr(above, "add_handler") and _NET not in above.inheritable_handlers:
        above.add_handler(_NET, inherit=True)
    with ruling, enter_tool(ruling.at):
        token = _RULED.set(_RULED.get() | {ruling.call.id})
        try:
            yield
        except GraphInterrupt:  # the tool asks somebody itself: it runs anew once that is answered
            ruling.release()
            raise
        finally:
            _RULED.reset(token)
