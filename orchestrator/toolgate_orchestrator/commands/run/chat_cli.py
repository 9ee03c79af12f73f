"""`toolgate chat`: a conversation with an agent from a mount plan, in one AmplifierSession.

Answers go to stdout as they are produced; the prompt, tool calls, rulings and notices to the
terminal's other stream. A script may write its prompts to stdin, a line each.
"""

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from toolgate_bus.commands.options import (
    KeysOption,
    MetricsAddressOption,
    MetricsPortOption,
    NamespaceOption,
    RedisOption,
    err_console,
)
from toolgate_bus.telemetry import tracing

from toolgate_orchestrator.commands.run.cli import PlanOption, ProviderOption, QuietOption
from toolgate_orchestrator.commands.run.conversation import Conversation
from toolgate_orchestrator.commands.run.live_view import LiveView
from toolgate_orchestrator.commands.run.opening import (
    Opened,
    asked_plan,
    in_session,
    metrics_told,
    named_namespace,
    on_bus,
)
from toolgate_orchestrator.commands.run.prompts import PipedLines, Prompts
from toolgate_orchestrator.commands.run.screen import Output, Screen
from toolgate_orchestrator.commands.run.turn_control import TurnControl

__all__ = ["chat"]


def chat(
    ctx: typer.Context,
    plan: PlanOption,
    provider: ProviderOption = None,
    quiet: QuietOption = False,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    metrics_port: MetricsPortOption = None,
    metrics_address: MetricsAddressOption = "127.0.0.1",
) -> None:
    """Talk with an agent; schedulers on the bus rule on its tool calls.

    Calls that need your approval are asked about in place.
    Ctrl-C cancels what the agent is doing: once, the running tool finishes;
    twice, at once. Ctrl-D leaves. /help tells more.

    Where stdin is not a terminal, each of its lines is a prompt:

        printf 'Hello\\nAnd in French?\\n' | toolgate chat --plan plan.yaml

    Exit codes: 0 you left, or all was answered; 1 a turn of a script failed;
    2 the plan or an option is wrong; 130 and 143 by a signal.
    """
    view = LiveView(Screen(Output(sys.stdout), err_console))
    asked = asked_plan(plan, provider)
    with (
        tracing.configure("toolgate-chat"),
        metrics_told(metrics_port, metrics_address),
        on_bus(asked, redis, named_namespace(ctx, namespace), keys) as laid,
    ):
        good = in_session(laid, view, _converse, quiet=quiet)
    if not good:
        raise typer.Exit(1)


async def _converse(opened: Opened) -> bool:
    """Have the conversation; False where a script's turn failed."""
    person = sys.stdin is not None and sys.stdin.isatty()
    prompts = _at_terminal(opened) if person else PipedLines(sys.stdin.fileno() if sys.stdin else -1)
    control = TurnControl(opened, prompts.interrupt)
    conversation = Conversation(opened, prompts, control)
    if not person:
        await conversation.run()
        return not conversation.failed
    opened.view.notice(f"{opened.plan.orchestrator['module']} is listening. /help tells more, Ctrl-D leaves.")
    with _ctrl_c_means(control):
        await conversation.run()
    return True


def _at_terminal(opened: Opened) -> Prompts:
    from toolgate_orchestrator.commands.run.prompt_line import PromptLine  # scripts do without it

    return PromptLine(opened.view.notice)


@contextmanager
def _ctrl_c_means(control: TurnControl) -> Iterator[None]:
    """SIGINT goes to the chat, which ends turns; SIGTERM still ends the program."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, control.press)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
