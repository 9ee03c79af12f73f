"""`toolgate run`: one turn of an agent from a mount plan, in a real AmplifierSession.

The answer goes to stdout, rulings and notices to stderr as they happen. Everything that can be wrong
with the plan is found before a server is started.
"""

import json
import logging
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from amplifier_core import AmplifierSession
from rich.text import Text
from toolgate_bus.cli_options import (
    JsonOption,
    KeysOption,
    NamespaceOption,
    RedisOption,
    err_console,
    run_async,
    started_bus,
)
from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.host.kernel_threads import let_kernel_threads_go
from toolgate_orchestrator.host.plan import Plan, read_plan, with_bus, with_provider
from toolgate_orchestrator.host.terminal_approvals import terminal_approvals
from toolgate_orchestrator.run.report import RunReport

__all__ = ["run"]


@dataclass(frozen=True, slots=True)
class _Ended:
    """How the session came out."""

    answer: str
    session: str
    report: RunReport
    error: str | None = None


def run(
    ctx: typer.Context,
    prompt: Annotated[str, typer.Argument(help="What the agent is asked to do.")],
    plan: Annotated[
        Path,
        typer.Option("--plan", metavar="FILE", help="Amplifier mount plan in YAML; ${NAME} is expanded."),
    ],
    provider: Annotated[
        str | None, typer.Option("--provider", metavar="NAME", help="Mounted provider that answers.")
    ] = None,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run an agent from a mount plan; schedulers on the bus rule on its tool calls."""
    mount = read_plan(plan)
    if provider is not None:
        mount = with_provider(mount, provider)
    source = ctx.get_parameter_source("namespace")
    named = source is not None and source.name != "DEFAULT"
    ended = _on_bus(mount, prompt, redis, namespace if named else None, keys)
    _print(ended, as_json)
    if ended.error is not None or ended.report.status == "error":
        raise typer.Exit(1)


def _on_bus(plan: Plan, prompt: str, redis: str | None, namespace: str | None, keys: Path | None) -> _Ended:
    """Run with the options laid over the plan's own `toolgate:` section; starts or joins a server."""
    if not plan.ours:
        return _run(with_bus(plan), prompt)
    own = plan.orchestrator["config"].get("toolgate") or {}
    own = own if isinstance(own, dict) else {}
    keys = keys or (Path(own["keys"]) if own.get("keys") else None)
    with started_bus(redis or own.get("redis"), namespace or own.get("namespace", "default"), keys) as bus:
        laid = with_bus(plan, redis=bus.redis, namespace=bus.namespace, keys=bus.keys and str(bus.keys))
        return _run(laid, prompt)


def _run(plan: Plan, prompt: str) -> _Ended:
    for notice in plan.notices:
        err_console.print(Text(f"notice: {notice}", style="dim"), soft_wrap=True)
    with terminal_approvals(lambda text: err_console.print(Text(text, style="yellow"))) as approvals:
        try:
            return run_async(lambda: _session(plan, prompt, approvals))
        finally:
            let_kernel_threads_go()


async def _session(plan: Plan, prompt: str, approvals: object) -> _Ended:
    report = RunReport(lambda line: err_console.print(line, soft_wrap=True))
    session_id = str(uuid.uuid4())
    session = AmplifierSession(plan.mount, session_id=session_id, approval_system=approvals)
    report.listen(session.coordinator.hooks)
    try:
        await _initialize(session, report)
        _check_provider(session, plan)
        try:
            answer = await session.execute(prompt)
        except Exception as error:  # noqa: BLE001 - whatever ended the turn is told, in one line
            return _Ended("", session_id, report, str(error))
        return _Ended(answer, session_id, report)
    finally:
        await session.cleanup()


async def _initialize(session: Any, report: RunReport) -> None:
    """Mount everything; raises ConfigError naming each module that did not load."""
    kernel = logging.getLogger("amplifier_core")
    level = kernel.level
    kernel.setLevel(logging.CRITICAL)  # what fails is named here, in one line
    try:
        await session.initialize()
    except Exception as error:
        raise ConfigError(_without_prefixes(str(error))) from error
    finally:
        kernel.setLevel(level)
    if report.failures:
        raise ConfigError("\n".join(f"failed to load {failure}" for failure in report.failures))


def _without_prefixes(message: str) -> str:
    return message.removeprefix("Session initialization failed: ").removeprefix("RuntimeError: ")


def _check_provider(session: Any, plan: Plan) -> None:
    wanted = plan.orchestrator["config"].get("default_provider")
    mounted = session.coordinator.get("providers") or {}
    if wanted and wanted not in mounted and str(wanted).removeprefix("provider-") not in mounted:
        raise ConfigError(f"provider {wanted!r} is not mounted; mounted: {', '.join(mounted)}")


def _print(ended: _Ended, as_json: bool) -> None:
    if as_json:
        told: dict[str, Any] = {
            "answer": ended.answer,
            "status": "error" if ended.error else ended.report.status,
            "session_id": ended.session,
            "decisions": ended.report.decisions,
        }
        typer.echo(json.dumps(told | ({"error": ended.error} if ended.error else {}), ensure_ascii=False))
        return
    if ended.error is not None:
        err_console.print(Text(f"Error: {ended.error}", style="red"), soft_wrap=True)
    else:
        typer.echo(ended.answer)
