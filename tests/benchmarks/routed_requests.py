"""Is the score a good router? Requests that others routed, beside RouteLLM's published routers.

    git clone https://github.com/lm-sys/RouteLLM
    python tests/benchmarks/routed_requests.py RouteLLM                  both data sets, all sides
    python tests/benchmarks/routed_requests.py RouteLLM --data gsm8k --seeds 2 --json

The record has 14,042 questions of MMLU and 1,319 of GSM8K, and whether GPT-4 and Mixtral answered each
correctly. Each question becomes a request to the strong model, which a scheduler may send to the weak one.
The schedulers are the product's own. They are told as facts what the answer cost, and a wrong answer as a
failed request: that is more than a fleet knows, which sees failures and no wrong answers. One request comes
after the other, one each second. Both models take two seconds, so `latency_weight` weighs each further try
alike.

The score sees no word of a request. So three settings differ in what it can know:

    all       all requests are of one kind, in any order
    blocks    the same, but one subject after another: the score can follow, as it forgets
    subjects  a pair of tools for each subject, in any order: what a fleet with an agent for each subject has

The curve of `cost-aware` goes along its weights. PGR, APGR and CPT are RouteLLM's. Beside it stand bounds:
any model, an oracle that knows all answers, and one that knows each subject's two averages beforehand.
"""

import argparse
import asyncio
import os
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent / "fleet"))

from benefit_sides import result_of, tell
from harness import Columns, Report, count, options, start
from routed_data import (
    DATASETS,
    MODELS,
    PRICES,
    PUBLISHED,
    STRONG,
    WEAK,
    Dataset,
    Point,
    Request,
    apgr,
    cpt,
    curve_of,
    in_order,
    oracle_curve,
    pgr,
    quality_of,
    read_requests,
    subject_curve,
)
from toolgate_bus.config.check import check
from toolgate_bus.protocol.events import Modify, ToolSelecting
from toolgate_bus.protocol.llm import LLM_REQUEST
from toolgate_schedulers.shipped.cost_aware.config import CostAwareConfig
from toolgate_schedulers.shipped.cost_aware.scheduler import CostAware
from toolgate_schedulers.shipped.router.router import Router, RouterConfig

WEIGHTS = (1.0, 0.6, 0.5, 0.45, 0.4, 0.35, 0.3, 0.2, 0.0)
"""Weights of cost along the curve; that of latency is the rest."""
DEFAULT = 0.6
SETTINGS = ("all", "blocks", "subjects")
EVERY_S = 1.0
TAKES_S = 2.0


class Run(NamedTuple):
    """All requests of a data set, once, with one side."""

    root: Path
    dataset: Dataset
    setting: str
    side: str
    weight: float
    """Weight of cost; that of latency is the rest."""
    seed: int


class Passed(NamedTuple):
    """What became of the requests."""

    strong: float
    """Share that went to the strong model."""
    quality: float
    usd: float


@lru_cache(maxsize=2)
def read_once(root: Path, dataset: Dataset) -> list[Request]:
    """Read the requests, once in each process."""
    return read_requests(root, dataset)


def measure(run: Run) -> Passed:
    """Put all requests before a side, in order, and tell it how each went."""
    requests = in_order(
        read_once(run.root, run.dataset), "blocks" if run.setting == "blocks" else "shuffled", run.seed
    )
    return pass_requests(requests, run.setting, run.side, run.weight, run.seed)


def pass_requests(requests: Sequence[Request], setting: str, side: str, weight: float, seed: int) -> Passed:
    """Put these requests before a side."""
    if side == "random":  # its weight is the share of the weak model
        random = Random(f"random {seed}")
        chosen = [WEAK if random.random() < weight else STRONG for _ in requests]
    else:
        chosen = Asker(requests, side, weight, by_subject=setting == "subjects").choose_all()
    passed = list(zip(requests, chosen, strict=True))
    return Passed(
        chosen.count(STRONG) / len(chosen),
        sum(one.right[model] for one, model in passed) / len(passed),
        sum(one.usd(model) for one, model in passed),
    )


class Asker:
    """Asks a scheduler about each request, and tells it the facts."""

    def __init__(self, requests: Sequence[Request], side: str, weight: float, *, by_subject: bool) -> None:
        self.requests, self.by_subject, self.now = requests, by_subject, 0.0
        self.subjects = sorted({one.subject for one in requests})
        self.tools = tuple(tool_of(subject, model) for subject in self.subjects for model in MODELS)
        if side == "cost-aware":
            config = check(CostAwareConfig, self.cost_config(weight), "cost.yaml")
            self.scheduler: Any = CostAware(config, clock=lambda: self.now, ticks=lambda: self.now)
        else:
            self.scheduler = Router(check(RouterConfig, self.routes(), "router.yaml"), clock=lambda: self.now)

    def cost_config(self, weight: float) -> dict[str, Any]:
        """Return prices, groups and weights: all that a user writes down."""
        weights = {"cost_weight": weight, "latency_weight": round(1 - weight, 6)}
        if not self.by_subject:
            prices = {model: {"input": PRICES[model], "output": PRICES[model]} for model in MODELS}
            return {"llm": {"prices": prices, "equivalents": [list(MODELS)]}, **weights}
        usual = {model: statistics.fmean(one.usd(model) for one in self.requests) for model in MODELS}
        costs = {
            tool_of(subject, model): {"cost": round(usual[model], 6)}
            for subject in self.subjects
            for model in MODELS
        }
        groups = [{"tools": [tool_of(subject, model) for model in MODELS]} for subject in self.subjects]
        return {"tools": costs, "alternatives": groups, **weights}

    def routes(self) -> dict[str, Any]:
        """Return routes to the one that does its work soonest; no prices."""
        if self.by_subject:
            pairs = [[tool_of(subject, model) for model in MODELS] for subject in self.subjects]
            targets = [[{"to": tool} for tool in pair] for pair in pairs]
        else:
            pairs = [[LLM_REQUEST]]
            targets = [[{"to": LLM_REQUEST, "arguments": _as_values(model)} for model in MODELS]]
        return {
            "routes": [
                {"from": pair, "targets": targets_of, "choose": "best"}
                for pair, targets_of in zip(pairs, targets, strict=True)
            ]
        }

    def choose_all(self) -> list[str]:
        """Return the model that each request went to."""
        return [self._pass(number, one) for number, one in enumerate(self.requests)]

    def _pass(self, number: int, one: Request) -> str:
        self.now = number * EVERY_S
        id_, question = f"d{number}", self._question(f"d{number}", one)
        verdict = result_of(self.scheduler.decide(question))
        chosen = self._chosen(question, verdict) if isinstance(verdict, Modify) else STRONG
        tell(self.scheduler, self._decision(id_, question, one, chosen))
        self.now += TAKES_S
        tell(self.scheduler, self._end(id_, one, chosen))
        return chosen

    def _question(self, id_: str, one: Request) -> ToolSelecting:
        own = tool_of(one.subject, STRONG) if self.by_subject else LLM_REQUEST
        return ToolSelecting.model_construct(
            id=id_, session="s", root_session="s", agent=one.subject, tool_name=own,
            tool_input={} if self.by_subject else request_to(STRONG, one),
            available_tools=self.tools if self.by_subject else (LLM_REQUEST, *MODELS),
        )  # fmt: skip

    def _chosen(self, question: ToolSelecting, verdict: Modify) -> str:
        if self.by_subject:
            return next(model for model in MODELS if (verdict.tool or "").endswith(_short(model)))
        given = {**question.tool_input, **(verdict.arguments or {})}
        return f"{given['provider']}/{given['model']}"

    def _decision(self, id_: str, question: ToolSelecting, one: Request, chosen: str) -> dict[str, Any]:
        outcome = "continue" if chosen == STRONG else "modify"
        fact = {"event": "decision", "id": id_, "outcome": outcome, "tool_name": question.tool_name}
        if self.by_subject:
            return {**fact, "final_tool": tool_of(one.subject, chosen)}
        asked = {"tool_input": question.tool_input, "final_input": request_to(chosen, one)}
        return {**fact, "final_tool": LLM_REQUEST, **asked}

    def _end(self, id_: str, one: Request, chosen: str) -> dict[str, Any]:
        well, usd = one.right[chosen], one.usd(chosen)
        fact = {"decision_id": id_, "seconds": TAKES_S, "cost": round(usd * 1e6), "orchestrator": "o"}
        if self.by_subject:
            event = "tool:post" if well else "tool:error"
            return {**fact, "event": event, "tool": tool_of(one.subject, chosen), "success": well}
        provider, _, model = chosen.partition("/")
        fact |= {"provider": provider, "model": model, "input_tokens": one.sent}
        fact |= {"output_tokens": one.answered[chosen], "estimated_tokens": one.sent, "cost_usd": usd}
        return {**fact, "event": "usage" if well else "provider:error"}


def tool_of(subject: str, model: str) -> str:
    """Return the tool that asks a model about a subject."""
    return f"{subject}_{_short(model)}"


def request_to(model: str, one: Request) -> dict[str, Any]:
    """Return the arguments of a request to a model."""
    provider, _, name = model.partition("/")
    most = max(one.answered.values())
    return {"provider": provider, "model": name, "input_tokens": one.sent, "max_output_tokens": most}


def _short(model: str) -> str:
    return "strong" if model == STRONG else "weak"


def _as_values(model: str) -> dict[str, Any]:
    provider, _, name = model.partition("/")
    return {"provider": {"value": provider}, "model": {"value": name}}


# ------------------------------------------------------------------ runs, tables


def runs_of(given: argparse.Namespace, dataset: Dataset) -> list[Run]:
    """List what is to be run of a data set. GSM8K has one subject: there all settings are one."""
    settings = SETTINGS if dataset == "mmlu" else SETTINGS[:1]
    sides = [
        *((setting, "cost-aware", weight) for setting in settings for weight in WEIGHTS),
        *((setting, "router", DEFAULT) for setting in settings),
        *(("all", "random", share / 10) for share in range(1, 10)),
    ]
    seeds = range(given.seeds)
    return [Run(given.path, dataset, *side, seed) for side in sides for seed in seeds]


def run_all(runs: Sequence[Run], processes: int, report: Report) -> dict[Run, Passed]:
    """Run them, in several processes, and say how far it is."""
    found: dict[Run, Passed] = {}
    with ProcessPoolExecutor(processes) as pool:
        started = {pool.submit(measure, run): run for run in runs}
        for done in as_completed(started):
            found[started[done]] = done.result()
            report.tell(f"{runs[0].dataset}: {len(found)} of {len(runs)} runs")
            if not sys.stderr.isatty() and len(found) % 50 == 0:
                print(f"{runs[0].dataset}: {len(found)} of {len(runs)} runs", file=sys.stderr)
    return found


def average(runs: Iterable[Passed]) -> Passed:
    """Return the mean over the seeds."""
    return Passed(*(statistics.fmean(values) for values in zip(*runs, strict=True)))


async def judge(given: argparse.Namespace, report: Report, dataset: Dataset) -> None:
    """Measure one data set, and print its tables."""
    requests = read_once(given.path, dataset)
    runs = runs_of(given, dataset)
    found = await asyncio.to_thread(run_all, runs, given.processes, report)
    weak, strong = quality_of(requests, WEAK), quality_of(requests, STRONG)
    dearest = sum(one.usd(STRONG) for one in requests)
    report.say(
        f"\n{dataset}: {len(requests)} requests of {len({one.subject for one in requests})} subjects, "
        f"{given.seeds} orders"
    )
    sides = {run[2:5]: average(found[run._replace(seed=seed)] for seed in range(given.seeds)) for run in runs}
    usd = {model: sum(one.usd(model) for one in requests) for model in MODELS}
    best = sum(one.right[WEAK] or one.right[STRONG] for one in requests) / len(requests)
    needed = [one for one in requests if one.right[STRONG] and not one.right[WEAK]]
    paid = usd[WEAK] + sum(one.usd(STRONG) - one.usd(WEAK) for one in needed)
    shown = {
        ("", "always strong", None): Passed(1.0, strong, usd[STRONG]),
        ("", "always weak", None): Passed(0.0, weak, usd[WEAK]),
        ("", "oracle", None): Passed(len(needed) / len(requests), best, paid),
        **{key: sides[key] for key in sides if key[1] != "random"},
    }
    rows = [
        {
            "dataset": dataset, "setting": setting, "side": side, "cost_weight": weight, "strong": one.strong,
            "quality": one.quality, "usd": one.usd, "saved": 1 - one.usd / dearest,
            "pgr": pgr(one.quality, weak, strong),
        }
        for (setting, side, weight), one in shown.items()
    ]  # fmt: skip
    for row in rows:
        report.add(row)
    report.show(POINTS, rows)
    curves = {
        "oracle": oracle_curve(requests),
        "knows each subject's averages": subject_curve(requests),
        "random": _curve(sides, "all", "random", weak, strong),
    }
    if dataset == "gsm8k":
        del curves["knows each subject's averages"]
    for setting in SETTINGS if dataset == "mmlu" else SETTINGS[:1]:
        curves[f"cost-aware, {setting}"] = _curve(sides, setting, "cost-aware", weak, strong)
    judged: list[dict[str, Any]] = [
        {
            "dataset": dataset, "curve": name, "apgr": apgr(curve, weak, strong),
            "cpt_50": cpt(curve, 0.5, weak, strong), "cpt_80": cpt(curve, 0.8, weak, strong),
        }
        for name, curve in curves.items()
    ]  # fmt: skip
    judged += [
        {"dataset": dataset, "curve": f"{one.name} (published)", **one._asdict()}
        for one in PUBLISHED[dataset]
    ]
    for row in judged:
        report.add(row)
    report.show(CURVES, judged)


def _curve(sides: Mapping[Any, Passed], setting: str, side: str, weak: float, strong: float) -> list[Point]:
    points = (Point(one.strong, one.quality) for key, one in sides.items() if key[:2] == (setting, side))
    return curve_of(points, weak, strong)


POINTS: Columns = {
    "": lambda row: f"{row['side']}{', ' if row['setting'] else ''}{row['setting']}",
    "cost_weight": lambda row: (
        "" if row["cost_weight"] is None or row["side"] != "cost-aware" else row["cost_weight"]
    ),
    "to the strong": lambda row: f"{row['strong']:.1%}",
    "correct": lambda row: f"{row['quality']:.1%}",
    "USD": lambda row: f"{row['usd']:.2f}",
    "saved": lambda row: f"{row['saved']:.0%}",
    "PGR": lambda row: f"{row['pgr']:.0%}",
}
CURVES: Columns = {
    "": lambda row: row["curve"],
    "APGR": lambda row: f"{row['apgr']:.3f}",
    "CPT(50%)": lambda row: f"{row['cpt_50']:.1%}",
    "CPT(80%)": lambda row: f"{row['cpt_80']:.1%}",
}


async def main(given: argparse.Namespace, report: Report) -> None:
    """Measure the data sets that were asked for."""
    for dataset in given.data:
        await judge(given, report, dataset)


OPTIONS = options(__doc__)
OPTIONS.add_argument("path", type=Path, metavar="PATH", help="a clone of github.com/lm-sys/RouteLLM")
OPTIONS.add_argument("--data", nargs="+", choices=DATASETS, default=list(DATASETS), help="default: both")
OPTIONS.add_argument("--seeds", type=count, default=5, help="orders of the requests (default: 5)")
OPTIONS.add_argument("--processes", type=count, default=os.cpu_count() or 1, help="default: one for each CPU")

if __name__ == "__main__":
    start(OPTIONS, main)
