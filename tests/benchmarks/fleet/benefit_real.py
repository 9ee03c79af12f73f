"""The same fleet with real processes: does the simulated one tell the truth?

    python tests/benchmarks/fleet/benefit_real.py                  a dozen agents, some four minutes a side
    python tests/benchmarks/fleet/benefit_real.py --agents 24 --seed 3 --mix airline

The world, its agents and its tools are those of `benefit.py`, but its time is the clock's. Each call is
ruled on by a real gate (`Guard`), over a real server, by two replicas of `cost-aware`, which are processes.
They learn from the record that the gate writes. Beside the figures stand those of the same world in
simulated time. They differ a little: the dice are the same, but each choice changes what comes after it.
"""

import argparse
import json
import time
from collections.abc import Mapping
from typing import Any

import anyio
import yaml
from benefit import COLUMNS, Run, compare, figures_of, measure
from benefit_market import LLM, MIXES
from benefit_sides import DEFAULT, REPLICAS, Own, cost_aware_config
from benefit_world import Ask, World
from toolgate_bus.commands.options import console
from toolgate_bus.commands.table import Table
from toolgate_bus.server.embedded import Server, private_server
from toolgate_bus.server.settings import BusSettings
from toolgate_orchestrator import Call, Guard, Ruling
from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, scheduler_processes

NAMESPACE = "bench-benefit"


class Gated:
    """Side that asks a real gate, and reports to it."""

    def __init__(self, world: World, guard: Guard) -> None:
        self._guard = guard
        self._rulings: dict[str, Ruling] = {}
        mix = world.market.mix
        self._tools = [tool.name for kind, tools in mix.tools.items() if kind != LLM for tool in tools]
        named = [tool.name.partition("/") for tool in mix.tools[LLM]]
        self._models = {provider: model for provider, _, model in named}

    def choose(self, ask: Ask, now: float) -> str | None:
        """Return what the schedulers rule."""
        at = self._guard.at(ask.session)
        if ask.kind == LLM:
            provider, _, model = ask.own.partition("/")
            sent = {"input_tokens": ask.tokens[0], "max_output_tokens": ask.tokens[1]}
            ruling = self._guard.rule_request_sync(provider, model, models=self._models, at=at, **sent)
            chosen = "{provider}/{model}".format(**ruling.arguments)
        else:
            ruling = self._guard.rule_sync(Call(ask.own, {"query": "q"}, self._tools, at))
            chosen = ruling.tool
        if not ruling.allowed:
            return None
        self._rulings[ask.id] = ruling
        return chosen

    def hear(self, fact: Mapping[str, Any], now: float) -> None:
        """Report the end of a call."""
        ruling = self._rulings.pop(fact.get("decision_id", ""), None)
        if ruling is None:
            return
        if fact["event"] == "tool:post":
            ruling.succeed({}, cost=str(fact["cost"] / 1e6))
        elif fact["event"] == "tool:error":
            ruling.fail(fact["error"], cost=str(fact["cost"] / 1e6))
        elif fact["event"] == "usage":
            used = {name: fact[name] for name in ("provider", "model", "input_tokens", "output_tokens")}
            self._guard.usage(**used, seconds=fact["seconds"], cost_usd=fact["cost_usd"], ruling=ruling)
        else:
            ruling.fail(fact["error"])


def run_real(run: Run, server: Server) -> dict[str, float]:
    """Run one world by the clock, with real schedulers; return its figures."""
    config = server.directory / "cost.yaml"
    plan = World(MIXES[run.mix], f"{run.mix} {run.seed}", lambda _world: Own(), run.agents)
    config.write_text(yaml.safe_dump(cost_aware_config(plan, run.weights)))

    async def host() -> dict[str, float]:
        bus = BusSettings(redis=server.url, namespace=NAMESPACE)
        async with scheduler_processes([SchedulerSpec("cost-aware", config)] * REPLICAS, bus):
            return await anyio.to_thread.run_sync(_run_world, run, server.url)

    return anyio.run(host)


def _run_world(run: Run, url: str) -> dict[str, float]:
    with Guard(redis=url, namespace=NAMESPACE, agent="worker", required=["cost-aware"]) as guard:
        world = World(MIXES[run.mix], f"{run.mix} {run.seed}", lambda world: Gated(world, guard), run.agents)
        began = time.monotonic()
        late = [0.0]

        def wait_until(at: float) -> None:
            left = began + at - time.monotonic()
            late[0] = max(late[0], -left)
            time.sleep(max(0.0, left))

        figures = figures_of(world.run(wait_until))
        return {**figures, "late_s": late[0]}


def main(given: argparse.Namespace) -> None:
    """Run and print both, and what they would be without."""
    run = Run(given.mix, f"judging {given.seed}", "cost-aware", DEFAULT, given.agents)
    without, oracle = (measure(run._replace(side=side)) for side in ("without", "oracle"))
    rows: list[dict[str, Any]] = [{"side": "without", **without}, {"side": "simulated", **measure(run)}]
    with private_server() as server:
        rows.append({"side": "real", **run_real(run, server)})
    for row in rows:
        compare(row, without, oracle)
        if given.json:
            print(json.dumps(row))
    if not given.json:
        table = Table([*COLUMNS], right=[name for name in COLUMNS if name])
        for row in rows:
            table.add_row(*(of(row) for of in COLUMNS.values()))
        console.print(table)
        console.print(f"An event of the real world was late by at most {rows[-1]['late_s']:.2f} s.")


def _options() -> argparse.ArgumentParser:
    first, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=12, help="default: 12")
    parser.add_argument("--mix", choices=MIXES, default="travel", help="default: travel")
    parser.add_argument("--seed", type=int, default=0, help="number of the judging seed (default: 0)")
    parser.add_argument("--json", action="store_true", help="print a line for each side")
    return parser


OPTIONS = _options()

if __name__ == "__main__":
    main(OPTIONS.parse_args())
