"""Requests that others routed: RouteLLM's record of two models' answers, and its measures of a router. Pure.

The record has questions of MMLU (with their subject) and GSM8K, and for each whether GPT-4 and Mixtral
answered it correctly. RouteLLM's own code leaves out questions that its training data has; so does this.

    PGR     part of the gap between the weak and the strong model's quality that a router recovers
    APGR    mean PGR over all shares of calls to the strong model, from none to all
    CPT(x)  least share of calls to the strong model that recovers the part x
"""

import csv
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Final, Literal, NamedTuple

from toolgate_bus.errors import ConfigError

Dataset = Literal["mmlu", "gsm8k"]
DATASETS: Final[tuple[Dataset, ...]] = ("mmlu", "gsm8k")
STRONG: Final = "openai/gpt-4-1106-preview"
WEAK: Final = "mistralai/Mixtral-8x7B-Instruct-v0.1"
MODELS: Final = (STRONG, WEAK)
_COLUMNS: Final = {STRONG: "gpt-4-1106-preview", WEAK: WEAK}
PRICES: Final = {STRONG: 24.7, WEAK: 0.24}
"""USD for a million tokens of requests and answers alike, as RouteLLM's paper reckons them."""
_LETTERS: Final = 4
"""Letters of a token."""
_MAX_FIELD: Final = 1_000_000


class Request(NamedTuple):
    """Request with what became of it at each model."""

    subject: str
    sent: int
    """Tokens of the request."""
    answered: dict[str, int]
    """Tokens of each model's answer."""
    right: dict[str, bool]
    """Whether each model's answer was correct."""

    def usd(self, model: str) -> float:
        """Return what a model costs for it."""
        return (self.sent + self.answered[model]) * PRICES[model] / 1e6


class Point(NamedTuple):
    """Place of a router: its share of calls to the strong model, and its share of correct answers."""

    strong: float
    quality: float


class Published(NamedTuple):
    """Figures that RouteLLM's paper gives (arXiv 2406.18665, tables 2 and 3)."""

    name: str
    apgr: float
    cpt_50: float
    cpt_80: float


PUBLISHED: Final[dict[Dataset, tuple[Published, ...]]] = {
    "mmlu": (
        Published("RouteLLM, random", 0.500, 0.5007, 0.7993),
        Published("RouteLLM, best of its routers in each figure", 0.603, 0.3540, 0.7031),
    ),
    "gsm8k": (
        Published("RouteLLM, random", 0.497, 0.5000, 0.8008),
        Published("RouteLLM, best of its routers in each figure", 0.622, 0.3364, 0.6326),
    ),
}


def read_requests(root: Path, dataset: Dataset) -> list[Request]:
    """Return the requests of a data set, from a clone of RouteLLM. Raise ConfigError."""
    folder = root / "routellm" / "evals" / dataset
    files = sorted(folder.glob("responses/mmlu_*.csv" if dataset == "mmlu" else "gsm8k_responses.csv"))
    if not files:
        raise ConfigError(
            f"{folder}: no responses: give a clone of https://github.com/lm-sys/RouteLLM as PATH"
        )
    csv.field_size_limit(_MAX_FIELD)
    try:
        lines = (folder / "contaminated_prompts.jsonl").read_text().splitlines()
        known = {str(json.loads(line)["eval_prompt"]) for line in lines if line}
        return [one for file in files for one in _read_file(file, known)]
    except (OSError, ValueError, KeyError, csv.Error) as error:
        raise ConfigError(f"{folder}: not as RouteLLM has it: {error!r}") from error


def _read_file(file: Path, known: set[str]) -> Iterable[Request]:
    subject = file.stem.removeprefix("mmlu_").removesuffix("_responses")
    with file.open(newline="") as opened:
        for row in csv.DictReader(opened):
            if row["prompt"] in known:
                continue
            right = {model: {"True": True, "False": False}[row[_COLUMNS[model]]] for model in MODELS}
            # MMLU's answers are a letter each, and are not recorded.
            answers = {model: row.get(f"{_COLUMNS[model]}_response") or "A" for model in MODELS}
            yield Request(
                subject,
                math.ceil(len(row["prompt"]) / _LETTERS),
                {model: math.ceil(len(text) / _LETTERS) for model, text in answers.items()},
                right,
            )


def in_order(requests: Sequence[Request], order: str, seed: int) -> list[Request]:
    """Return the requests `shuffled`, or shuffled in `blocks`, one subject after another."""
    random, found = Random(f"order {seed}"), list(requests)
    random.shuffle(found)
    if order == "blocks":
        subjects = sorted({one.subject for one in found})
        random.shuffle(subjects)
        found.sort(key=lambda one: subjects.index(one.subject))
    return found


def quality_of(requests: Sequence[Request], model: str) -> float:
    """Return the share of correct answers of a model."""
    return sum(one.right[model] for one in requests) / len(requests)


# ------------------------------------------------------------------ measures, as RouteLLM defines them


def pgr(quality: float, weak: float, strong: float) -> float:
    """Return the part of the gap that is recovered."""
    return (quality - weak) / (strong - weak)


def apgr(curve: Sequence[Point], weak: float, strong: float) -> float:
    """Return the area under a curve of PGR by share of calls, from no call to all."""
    return sum(
        (after.strong - before.strong) * pgr((before.quality + after.quality) / 2, weak, strong)
        for before, after in itertools.pairwise(curve)
    )


def cpt(curve: Sequence[Point], part: float, weak: float, strong: float) -> float:
    """Return the least share of calls to the strong model at which a curve recovers a part of the gap."""
    wanted = weak + part * (strong - weak)
    for before, after in itertools.pairwise(curve):
        if after.quality >= wanted:
            rise = after.quality - before.quality
            way = (wanted - before.quality) / rise if rise > 0 else 0.0
            return before.strong + max(0.0, way) * (after.strong - before.strong)
    return 1.0


def curve_of(points: Iterable[Point], weak: float, strong: float) -> list[Point]:
    """Return a curve from no call of the strong model to all, through these points."""
    return sorted({Point(0.0, weak), *points, Point(1.0, strong)})


# ------------------------------------------------------------------ bounds


def oracle_curve(requests: Sequence[Request]) -> list[Point]:
    """Return the best that is possible: who knows each answer beforehand."""
    gains = sum(one.right[STRONG] and not one.right[WEAK] for one in requests)
    weak = quality_of(requests, WEAK)
    shares = [step / 10 for step in range(11)]
    return [Point(share, weak + min(share, gains / len(requests))) for share in shares]


def subject_curve(requests: Sequence[Request]) -> list[Point]:
    """Return the best that is possible for who knows the subject only: those with the widest gap first."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for one in requests:
        counts[one.subject][0] += 1
        counts[one.subject][1] += one.right[STRONG] - one.right[WEAK]
    points = [Point(0.0, quality_of(requests, WEAK))]
    for many, gain in sorted(counts.values(), key=lambda one: one[1] / one[0], reverse=True):
        last = points[-1]
        points.append(Point(last.strong + many / len(requests), last.quality + gain / len(requests)))
    return points
