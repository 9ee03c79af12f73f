"""`toolgate run`: one turn of an agent from a mount plan, in a real AmplifierSession.

The answer goes to stdout, rulings and notices to stderr as they happen. With `--stream` the answer
comes piece by piece, and tool calls are shown, too; with `--json`, one object at the end, or with
both, one object an event.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer
from toolgate_bus.commands.options import (
    KeysOption,
    MetricsAddressOption,
    MetricsPortOption,
    NamespaceOption,
    RedisOption,
    err_console,
)
from toolgate_bus.errors import ConfigError
from toolgate_bus.telemetry import tracing

from toolgate_orchestrator.commands.run.live_view import LiveView
from toolgate_orchestrator.commands.run.opening import (
    in_session,
    load_plan,
    on_bus,
    read_namespace,
    serve_own_metrics,
)
from toolgate_orchestrator.commands.run.screen import Screen, ScreenOutput
from toolgate_orchestrator.commands.run.view import JsonLines, JsonView, View

PlanOption = Annotated[
    Path,
    typer.Option(
        "--plan",
        metavar="FILE",
        help="YAML file of the agent (an Amplifier mount plan). ${NAME} is replaced by the variable NAME.",
    ),
]
ProviderOption = Annotated[
    str | None, typer.Option("--provider", metavar="NAME", help="Provider of the plan to use.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Print no warnings about schedulers.")]


def run(
    ctx: typer.Context,
    prompt: Annotated[str, typer.Argument(help="Task for the agent.")],
    plan: PlanOption,
    provider: ProviderOption = None,
    quiet: QuietOption = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="Show the answer as it comes, and each tool call.")
    ] = False,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    metrics_port: MetricsPortOption = None,
    metrics_address: MetricsAddressOption = "127.0.0.1",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object; with --stream, one for each event.")
    ] = False,
) -> None:
    """Run an agent from a mount plan; schedulers rule on its tool calls.

    \b
      toolgate init my-agent && cd my-agent     writes a plan, with a scripted LLM
      toolgate run "Tidy up" --plan plan.yaml

    The answer goes to stdout; denied and replaced calls are reported on stderr. If a call needs a person's
    approval, Toolgate asks on the terminal; without a terminal it denies the call. It also asks about calls
    that a scheduler holds for a person, if this user may answer them.

    Exit codes: 0 answered (also if calls were denied), 1 the turn failed or was stopped, a request to the LLM
    was denied, or the bus cannot be reached and the plan requires a scheduler, 2 the plan or an option is
    wrong, 130 Ctrl-C.
    """
    if not prompt.strip():
        raise ConfigError('the prompt is empty. Name a task, for example: toolgate run "Tidy up" --plan FILE')
    view: View = JsonView() if as_json else View()
    if stream:
        out = ScreenOutput(sys.stdout)
        view = JsonLines(out) if as_json else LiveView(Screen(out, err_console))
    asked = load_plan(plan, provider)
    with (
        tracing.configure("toolgate-run"),
        serve_own_metrics(metrics_port, metrics_address),
        on_bus(asked, redis, read_namespace(ctx, namespace), keys) as laid,
    ):
        ended = in_session(laid, view, lambda opened: opened.one_turn(prompt), quiet=quiet, needs_bus=True)
    if ended.status == "cancelled":
        view.notice("the turn was stopped before it was done", "yellow")
    if ended.problem is not None or ended.status == "cancelled" or ended.is_refused:
        raise typer.Exit(1)
