"""Wrappers by which the gate learns more than CrewAI's hooks tell: call ids, failing tools, cached
results."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from crewai.utilities.string_utils import sanitize_tool_name

from toolgate_orchestrator.contrib.crewai.step import STEP, ToolStep


def note_call(extract: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap the function that reads a call, to note its id, name and arguments.

    CrewAI reads the call in the thread that runs it, just before it sends the call through the hooks.
    """

    @functools.wraps(extract)
    def extract_and_note(tool_call: Any) -> Any:
        found = extract(tool_call)
        ToolStep.named.set(found)
        return found

    return extract_and_note


def watch_run(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function that runs a tool, to note its errors. CrewAI turns an error into text before its
    hooks see it."""

    @functools.wraps(run)
    def run_watched(tool: Any, *args: Any, **kwargs: Any) -> Any:
        step = STEP.get()
        if step is None or step.ruling is None or sanitize_tool_name(tool.name) != step.name:
            return run(tool, *args, **kwargs)  # a tool within another tool is part of that call
        if step.error is not None and (refusal := step.rule_again(step.ruling.at)):
            return refusal
        try:
            return run(tool, *args, **kwargs)
        except BaseException as error:
            step.error = error
            step.ruling.fail(error)
            raise

    return run_watched


def note_cache(read: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap CrewAI's cache, to note calls that it answers: such a call was ruled on, but did not run."""

    @functools.wraps(read)
    def read_and_note(cache: Any, *args: Any, **kwargs: Any) -> Any:
        found, step = read(cache, *args, **kwargs), STEP.get()
        if step is not None and found is not None:
            step.is_cached = True
        return found

    return read_and_note


def tokens_of(used: Mapping[str, Any]) -> tuple[int, int]:
    """Return the tokens of a request and of its answer, under the names that different providers use."""
    asked = used.get("prompt_tokens") or used.get("input_tokens") or 0
    return int(asked), int(used.get("completion_tokens") or used.get("output_tokens") or 0)
