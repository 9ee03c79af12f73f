"""`toolgate scheduler push`, `history`, `diff`, `undo`, `rollout`, `status`, `check`: options and output."""

from pathlib import Path
from typing import Annotated, Any

import typer
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import (
    JsonOption,
    KeysOption,
    NamespaceOption,
    RedisOption,
    console,
    err_console,
)
from toolgate_bus.commands.table import Table
from toolgate_bus.commands.terminal import print_json, print_text

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name that the scheduler runs under.")]
SpecOption = Annotated[
    str | None,
    typer.Option(metavar="NAME_OR_MODULE:ATTR", help="Scheduler that runs under that name, if it differs."),
]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Refuse rules that do not fit the tools of living agents.")
]
FileOption = Annotated[Path, typer.Option("--config", metavar="FILE", help="Its configuration, in YAML.")]


def push(
    name: NameArgument,
    config: FileOption,
    label: Annotated[str, typer.Option(help="Your label for it. Verdicts and lists name it.")] = "",
    spec: SpecOption = None,
    stage: Annotated[bool, typer.Option("--stage", help="Only store it, for a rollout.")] = False,
    strict: StrictOption = False,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    json_: JsonOption = False,
) -> None:
    """Check a configuration and put it in force in every replica, within seconds.

    \b
      toolgate scheduler push policy --config new.yaml --label v7
      toolgate scheduler push policy --config new.yaml --label v7 --stage
      toolgate scheduler push treasury --spec approval --config t.yaml

    A pushed configuration wins over --config and SIGHUP, until `undo --to file`.
    The command names rules on tools or arguments that no living agent has. With
    --strict it then stores nothing.

    Exit codes: 0 stored, 1 the bus is away, 2 the configuration is wrong
    (with --strict also: it does not fit living agents).
    """
    from toolgate_bus.state.config_record import StoredConfig

    from toolgate_schedulers.commands.rule_check import RuleCheck
    from toolgate_schedulers.commands.scheduler_configs import ConfigCommands, at_desk, read_checked

    checked, own = read_checked(config, spec or name, name), spec or name

    async def compare_and_push(desk: ConfigCommands) -> tuple[RuleCheck, StoredConfig]:
        compared = await desk.compare(checked, own, strict=strict)
        return compared, await desk.push(checked.text, label, own, stage=stage)

    compared, new = at_desk(name, redis, namespace, keys, compare_and_push)
    done = "stored; nothing rules by it yet" if stage else "in force within seconds"
    if json_:
        told = {"scheduler": name, "revision": new.revision.text, "digest": new.digest, "staged": stage}
        print_json({**told, **compared.as_json()})
    else:
        compared.show()
        console.print(escape(f"{name}: {new.revision.text} is {done}"), soft_wrap=True)


def history(
    name: NameArgument,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    json_: JsonOption = False,
) -> None:
    """Show the pushed configurations, newest first.

    \b
      toolgate scheduler history policy
    """
    from toolgate_schedulers.commands.scheduler_configs import at_desk, history_rows

    rows = history_rows(at_desk(name, redis, namespace, keys, lambda desk: desk.store.read()).record)
    if json_:
        for row in rows:
            print_json(row)
        return
    if not rows:
        err_console.print(escape(f"Nothing was pushed for {name}: each replica rules by its own file."))
        return
    table = Table(
        ("revision", "state", "author", "at", "bytes"), right=("bytes",), cut={"author"}, spare=("bytes",)
    )
    for row in rows:
        table.add_row(*(escape(str(row[key])) for key in ("revision", "state", "author", "at", "bytes")))
    console.print(table)


def diff(
    name: NameArgument,
    one: Annotated[str, typer.Argument(metavar="A", help="A label, or the beginning of a digest.")],
    other: Annotated[str, typer.Argument(metavar="B", help="Another label or digest.")],
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    json_: JsonOption = False,
) -> None:
    """Show the difference between two pushed configurations.

    \b
      toolgate scheduler diff policy v6 v7
    """
    from toolgate_schedulers.commands.scheduler_configs import at_desk, diff_texts

    lines = at_desk(name, redis, namespace, keys, lambda desk: diff_texts(desk, one, other))
    if json_:
        print_json({"scheduler": name, "from": one, "to": other, "diff": lines})
        return
    colors = {"+": "green", "-": "red", "@": "cyan"}
    for line in lines:
        color = colors.get(line[:1])
        told = escape(line)
        console.print(f"[{color}]{told}[/]" if color else told, soft_wrap=True, highlight=False)


def undo(
    name: NameArgument,
    to: Annotated[
        str | None, typer.Option(metavar="LABEL", help="Which one; `file` is each replica's own.")
    ] = None,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    json_: JsonOption = False,
) -> None:
    """Put the previous configuration in force again, in every replica, within seconds.

    \b
      toolgate scheduler undo policy
      toolgate scheduler undo policy --to v5
      toolgate scheduler undo policy --to file
    """
    from toolgate_schedulers.commands.scheduler_configs import at_desk

    record = at_desk(name, redis, namespace, keys, lambda desk: desk.undo(to))
    now = record.name(record.active)
    if json_:
        print_json({"scheduler": name, "revision": now})
    else:
        console.print(escape(f"{name}: {now} is in force within seconds"), soft_wrap=True)


def rollout(
    name: NameArgument,
    to: Annotated[
        str | None, typer.Option(metavar="LABEL", help="The configuration that was pushed with --stage.")
    ] = None,
    shadow: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time in which it is only asked beside the old one.")
    ] = None,
    share: Annotated[
        list[int] | None,
        typer.Option(metavar="PERCENT", min=1, max=99, help="Share of the sessions; may be repeated."),
    ] = None,
    step: Annotated[
        str, typer.Option(metavar="TIME", help="Duration of each share; 0: until --advance.")
    ] = "10m",
    undo_if: Annotated[
        str,
        typer.Option(
            metavar="CONDITION",
            help="Undo it on this: veto_rate, error_rate or disagreement, as in 'veto_rate > 2x'.",
        ),
    ] = "",
    min_sample: Annotated[
        int,
        typer.Option(
            min=1, max=1_000_000, help="Minimum number of calls before --undo-if is judged and a stage ends."
        ),
    ] = 20,
    advance: Annotated[bool, typer.Option("--advance", help="Begin the next stage now.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Undo it: the old one rules again.")] = False,
    strict: StrictOption = False,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    json_: JsonOption = False,
) -> None:
    """Put a new configuration in force step by step: as a shadow, on a share of the sessions, on all.

    \b
      toolgate scheduler push policy --config new.yaml --label v7 --stage
      toolgate scheduler rollout policy --to v7 --undo-if 'veto_rate > 2x'
      toolgate scheduler status policy
      toolgate scheduler rollout policy --advance
      toolgate scheduler rollout policy --cancel

    The replicas continue or undo the rollout by themselves; this command ends at
    once. With --to the configuration is compared with the tools of living agents,
    as by `push`.
    """
    from toolgate_bus.errors import ConfigError
    from toolgate_bus.state.config_record import ConfigRecord

    from toolgate_schedulers.commands.rule_check import RuleCheck
    from toolgate_schedulers.commands.scheduler_configs import ConfigCommands, at_desk, plan_rollout

    if sum((to is not None, advance, cancel)) != 1:
        raise ConfigError("give one of --to LABEL, --advance, --cancel")
    if to is not None:
        planned = plan_rollout(shadow, share or (), step, undo_if, min_sample)

        async def compare_and_begin(desk: ConfigCommands) -> tuple[RuleCheck, ConfigRecord]:
            return await desk.compare_stored(to, strict=strict), await desk.begin(to, planned)

        compared, record = at_desk(name, redis, namespace, keys, compare_and_begin)
        stages = [one.text for one in record.rollout.stages] if record.rollout else []
        told: dict[str, Any] = {"scheduler": name, "rollout": planned.id, "stages": stages}
        told |= compared.as_json()
        if not json_:
            compared.show()
        words = f"{name}: {to} goes through {', '.join([*stages, 'all'])}: toolgate scheduler status {name}"
    else:
        moved = at_desk(name, redis, namespace, keys, lambda desk: desk.move(cancel=cancel))
        ending = moved.progress.ending if moved.progress else ""
        told = {"scheduler": name, "ending": ending, "stage": moved.progress.stage if moved.progress else 0}
        words = f"{name}: the rollout {'is ' + ending if ending else 'goes on to its next stage'}"
    print_json(told) if json_ else console.print(escape(words), soft_wrap=True)


def status(
    name: NameArgument,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again each second.")] = False,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    keys: KeysOption = None,
    json_: JsonOption = False,
) -> None:
    """Show the configuration in force, the replicas that use or refuse it, and the state of a rollout.

    \b
      toolgate scheduler status policy
      toolgate scheduler status policy --watch
    """
    import anyio  # import here, as in all of these: `list` and the help need none of it

    from toolgate_schedulers.commands.scheduler_configs import ConfigCommands, at_desk

    async def show(desk: ConfigCommands) -> None:
        while True:
            told = (await desk.status()).as_json()
            print_json(told) if json_ else _show(told)
            if not watch:
                return
            await anyio.sleep(1)

    at_desk(name, redis, namespace, keys, show)


def _show(told: dict[str, Any]) -> None:
    in_force = told["in_force"]
    own = " (each replica's own file; no pushed configuration)" if in_force == "file" else ""
    print_text(f"{told['scheduler']}: {in_force} is in force{own}")
    if found := told.get("rollout"):
        lasts = f"{found['seconds']:.0f} of {found['of']:.0f} s" if found["of"] else "until --advance"
        print_text(f"  rollout of {found['to']}: {found['stage']}, {lasts}; then {_rest(found)}")
        print_text(
            f"  new: {found['asked']} calls, {found['vetoes']} denied, {found['errors']} failed; old: "
            f"{found['was_asked']}, {found['was_vetoes']}, {found['was_errors']}; "
            f"{found['disagreed']} of {found['compared']} compared answers differ"
        )
    if found := told.get("last_rollout"):
        print_text(f"  the last rollout is {found['ending']}: {found['why']}")
    for one in told["replicas"]:
        words = f"rules by {one['revision'] or 'an unknown revision'}"
        words += f", tries {one['trial']}" if one.get("trial") else ""
        words += "; does not follow pushed configurations" if one["follows"] is False else ""
        words += f"; refused: {one['refused']}" if one.get("refused") else ""
        print_text(f"  {one['replica']} {words}")


def _rest(found: dict[str, Any]) -> str:
    return ", ".join([*found["stages"][found["number"] :], "all"])


def check(
    name: NameArgument,
    config: FileOption,
    spec: SpecOption = None,
    strict: StrictOption = False,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    json_: JsonOption = False,
) -> None:
    """Check a configuration as `push` and `run` do, for example in the CI of a repository of rules.

    \b
      toolgate scheduler check policy --config policy.yaml
      toolgate scheduler check policy --config policy.yaml --strict

    It needs no bus. If agents are alive on one, it also names rules on tools or
    arguments that none of them has, values of another type, and conditions
    that can never hold or always hold.

    Exit codes: 0 it is valid, 2 it is wrong (with --strict also: it does not
    fit living agents).
    """
    from toolgate_bus.errors import ConfigError
    from toolgate_bus.state.config_record import digest_of

    from toolgate_schedulers.commands.rule_check import RuleCheck, compare_at_bus
    from toolgate_schedulers.commands.scheduler_configs import read_checked

    compared = RuleCheck()
    try:
        checked = read_checked(config, spec or name, name)
        compared = compare_at_bus(spec or name, checked.document, redis, namespace, checked.tools)
        if strict:
            compared.refuse()
    except ConfigError as error:
        if not json_:
            raise
        wrong = {"ok": False, "config": str(config), "errors": str(error).splitlines()}
        print_json({**wrong, **compared.as_json()})
        raise typer.Exit(2) from None
    if json_:
        told = {"ok": True, "config": str(config), "digest": digest_of(checked.text)}
        print_json({**told, **compared.as_json()})
    else:
        compared.show()
        console.print(escape(f"{config}: valid, {digest_of(checked.text)[:12]}"), soft_wrap=True)
