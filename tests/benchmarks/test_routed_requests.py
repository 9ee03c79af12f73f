"""The benchmark of routed requests: what it reads, how it measures, and that a scheduler learns in it."""

import csv
import itertools
import json
from pathlib import Path

import pytest
from routed_data import (
    MODELS,
    STRONG,
    WEAK,
    Point,
    Request,
    apgr,
    cpt,
    curve_of,
    in_order,
    oracle_curve,
    pgr,
    read_requests,
    subject_curve,
)
from routed_requests import pass_requests
from toolgate_bus.errors import ConfigError

pytestmark = pytest.mark.pure


def ask(subject, weak, strong):
    return Request(subject, 100, dict.fromkeys(MODELS, 10), {WEAK: weak, STRONG: strong})


MATHS = [ask("maths", weak=False, strong=True)] * 150
TRIVIA = [ask("trivia", weak=True, strong=True)] * 150


def test_a_clone_is_read_without_the_questions_that_its_training_data_has(tmp_path: Path) -> None:
    folder = tmp_path / "routellm/evals/mmlu"
    (folder / "responses").mkdir(parents=True)
    (folder / "contaminated_prompts.jsonl").write_text(json.dumps({"eval_prompt": "seen"}) + "\n")
    with (folder / "responses/mmlu_anatomy.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["prompt", "mistralai/Mixtral-8x7B-Instruct-v0.1", "gpt-4-1106-preview"])
        rows.writerows([["a question,\nof two lines", "False", "True"], ["seen", "True", "True"]])
    (one,) = read_requests(tmp_path, "mmlu")
    assert (one.subject, one.sent, one.right) == ("anatomy", 6, {WEAK: False, STRONG: True})
    with pytest.raises(ConfigError, match="give a clone"):
        read_requests(tmp_path, "gsm8k")


def test_a_record_of_another_form_is_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "routellm/evals/gsm8k"
    folder.mkdir(parents=True)
    (folder / "contaminated_prompts.jsonl").write_text("")
    (folder / "gsm8k_responses.csv").write_text("prompt,answer\nq,a\n")
    with pytest.raises(ConfigError, match="not as RouteLLM has it"):
        read_requests(tmp_path, "gsm8k")


def test_the_measures_are_those_of_a_straight_line_and_of_a_step() -> None:
    line = curve_of([], weak=0.6, strong=0.8)
    assert apgr(line, 0.6, 0.8) == pytest.approx(0.5)
    assert cpt(line, 0.8, 0.6, 0.8) == pytest.approx(0.8)
    step = curve_of([Point(0.25, 0.8)], weak=0.6, strong=0.8)
    assert apgr(step, 0.6, 0.8) == pytest.approx(0.875)
    assert cpt(step, 0.5, 0.6, 0.8) == pytest.approx(0.125)
    assert pgr(0.65, 0.6, 0.8) == pytest.approx(0.25)


def test_the_oracle_needs_only_what_the_weak_model_gets_wrong() -> None:
    requests = [*MATHS, *TRIVIA]
    assert oracle_curve(requests)[5] == Point(0.5, 1.0)
    assert subject_curve(requests)[1] == Point(0.5, 1.0)


def test_an_order_by_blocks_keeps_each_subject_together() -> None:
    found = [one.subject for one in in_order([*MATHS, *TRIVIA], "blocks", 1)]
    assert sum(one != other for one, other in itertools.pairwise(found)) == 1
    assert in_order(MATHS, "shuffled", 1) == in_order(MATHS, "shuffled", 1)


def test_cost_aware_sends_a_subject_to_the_strong_model_only_where_the_weak_one_fails() -> None:
    requests = in_order([*MATHS, *TRIVIA], "shuffled", 0)
    told_apart = pass_requests(requests, "subjects", "cost-aware", 0.6, 0)
    assert told_apart.quality > 0.95
    assert 0.45 < told_apart.strong < 0.6
    assert pass_requests(requests, "subjects", "cost-aware", 0.6, 0) == told_apart


def test_requests_of_one_kind_are_not_told_apart_but_blocks_are_followed() -> None:
    shuffled = in_order([*MATHS, *TRIVIA], "shuffled", 0)
    blocks = in_order([*MATHS, *TRIVIA], "blocks", 0)
    in_any_order = pass_requests(shuffled, "all", "cost-aware", 0.6, 0)
    followed = pass_requests(blocks, "blocks", "cost-aware", 0.6, 0)
    assert pgr(in_any_order.quality, 0.5, 1.0) == pytest.approx(in_any_order.strong, abs=0.12)
    assert pgr(followed.quality, 0.5, 1.0) > followed.strong + 0.1


def test_router_takes_the_model_that_succeeds_whatever_it_costs() -> None:
    requests = in_order([*MATHS, *TRIVIA], "shuffled", 0)
    assert pass_requests(requests, "all", "router", 0.6, 0).quality > 0.95
