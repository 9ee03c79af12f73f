"""Results of Claude Code's tools after a ruling, in the form that the client takes. Pure.

Claude Code passes over a changed output that has not the form of its tool's own, and the LLM then gets the
unchanged one. So texts are changed only within that form. Where that is not possible, nothing of the output
is given but a sentence. If it is not known that the client takes it, the turn ends before the LLM is asked.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from toolgate_orchestrator.calls.result_parts import describe_data
from toolgate_orchestrator.coding_agents.event import RuledResult
from toolgate_orchestrator.coding_agents.given_text import EMPTY, read_given, text_of_given

MCP: Final = "mcp__"
WITHHELD: Final = (
    "The tool ran, but its result is withheld: what was to be given does not fit the tool's form."
)
_PLACE: Final = "⟦words⟧"
_USAGE: Final = {
    **dict.fromkeys(("input_tokens", "output_tokens"), 0),
    **dict.fromkeys(("cache_creation_input_tokens", "cache_read_input_tokens", "server_tool_use")),
    **dict.fromkeys(("service_tier", "cache_creation")),
}
_AGENT: Final = {
    "status": "completed",
    "agentId": "",
    "content": [{"type": "text", "text": _PLACE}],
    **dict.fromkeys(("totalToolUseCount", "totalDurationMs", "totalTokens"), 0),
    "usage": _USAGE,
    "prompt": "",
}
_PATCH: Final[Mapping[str, Any]] = {"filePath": _PLACE, "structuredPatch": [], "originalFile": None}
_FORMS: Final[Mapping[str, Any]] = {
    "Bash": {"stdout": _PLACE, "stderr": "", "interrupted": False, "isImage": False},
    "Read": {
        "type": "text",
        "file": {"filePath": "", "content": _PLACE, "numLines": 1, "startLine": 1, "totalLines": 1},
    },
    "Grep": {"mode": "content", "numFiles": 0, "filenames": [], "content": _PLACE, "numLines": 1},
    "Glob": {"filenames": [_PLACE], "durationMs": 0, "numFiles": 1, "truncated": False},
    "Write": {"type": "update", "content": "", **_PATCH},
    "Edit": {"oldString": "", "newString": "", "userModified": False, "replaceAll": False, **_PATCH},
    "Agent": _AGENT,
    "Task": _AGENT,
    "WebSearch": {"query": "", "results": [_PLACE], "durationSeconds": 0},
    "WebFetch": {"bytes": 0, "code": 200, "codeText": "", "result": _PLACE, "durationMs": 0, "url": ""},
}
"""Outputs that hold one sentence alone, by tool, after the types that Claude Code 2.1.332 comes with."""
_FIXED: Final = frozenset({"type", "mode", "status"})
"""Fields whose text is one of a few words, and that the client checks."""
_COPIES: Final = ("persistedOutputPath", "persistedOutputSize", "rawOutputPath")
"""Fields of a file with the whole output, which the client would show in place of the text."""
_FIELD: Final = re.compile(r"_?[A-Za-z]{1,20}(?:_[A-Za-z]{1,20}){0,3}")
"""Name of a field, and not likely data: words without a digit."""
_KINDS: Final = frozenset(
    {"text", "json", "image", "file", "content", "count", "files_with_matches", "create", "update"}
    | {"completed", "running", "pending", "success", "failed", "error", "ok"}
)
"""Texts of fixed fields that a withheld output keeps."""
_WORD: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")


class NewOutput(NamedTuple):
    """An output that stands in place of a tool's own."""

    value: Any
    is_sure: bool
    """True if it is known that the client takes it."""


def make_output(tool: str, own: Any, given: RuledResult) -> NewOutput:
    """Return the output to give in place of a tool's own one, after a ruling that changed it."""
    value, mark = read_given(given)
    if tool.startswith(MCP) or type(own) is str:
        return NewOutput(_as_text(own, value, given, mark), True)
    can_fit = describe_data(own) is own and (not mark or tool in _FORMS)
    if given.outcome == "masked" and type(value) is type(own) and can_fit:
        fitted = _Overlay(given.hidden, is_cut=bool(mark)).make(own, value)
        if fitted is not None:
            return NewOutput(_add(fitted.value, mark), fitted.is_sure or tool in _FORMS)
    if given.outcome == "masked":
        return withhold_output(tool, own, WITHHELD, given.hidden)
    words = text_of_given(given, head=given.outcome == "replaced")
    return withhold_output(tool, own, words, given.hidden)


def withhold_output(tool: str, own: Any, words: str, hidden: frozenset[str] = frozenset()) -> NewOutput:
    """Return an output that has nothing but a sentence; no name of a field in it holds a hidden text."""
    if tool.startswith(MCP) or type(own) is str:
        return NewOutput(_in_form_of_mcp(own, words), True)
    form = _FORMS.get(tool)
    return NewOutput(_blank(own, hidden) if form is None else _put(form, words), form is not None)


def _as_text(own: Any, value: Any, given: RuledResult, mark: str) -> Any:
    """Return an output that is not checked: of the kind that it was."""
    if (
        given.outcome == "masked"
        and type(value) is type(own)
        and (type(own) is not list or _are_blocks(value))
    ):
        return _add(value, mark)
    return _in_form_of_mcp(own, text_of_given(given, head=given.outcome != "withheld"))


def _in_form_of_mcp(own: Any, words: str) -> Any:
    if type(own) is str:
        return words
    blocks = [{"type": "text", "text": words}]
    return {"content": blocks} if type(own) is dict and "content" in own else blocks


def _are_blocks(value: Any) -> bool:
    """Return whether each of these is a text as the LLM's interface takes it: data were not ruled on."""
    return all(
        isinstance(one, dict) and one.get("type") == "text" and isinstance(one.get("text"), str)
        for one in value
    )


class _Overlay:
    """Puts the texts of a ruled result into the form of the tool's own output; gives nothing else of that."""

    def __init__(self, hidden: frozenset[str], *, is_cut: bool) -> None:
        self._hidden, self._is_cut, self._is_sure = hidden, is_cut, True

    def make(self, own: Any, value: Any) -> NewOutput | None:
        """Return the output; None if it cannot have that form."""
        try:
            made = self._merge("", own, value)
        except LookupError:
            return None
        if isinstance(made, dict) and isinstance(own, dict) and any(name in own for name in _COPIES):
            made = {name: one for name, one in made.items() if name not in _COPIES}
        return NewOutput(made, self._is_sure)

    def _merge(self, name: str, own: Any, value: Any) -> Any:
        kind = type(own)
        if kind is str:
            if type(value) is not str and not self._is_cut:
                raise LookupError(name)
            text = value if type(value) is str else ""
            if text != own and name in _FIXED:
                raise LookupError(name)
            self._is_sure &= text == own or _WORD.fullmatch(own) is None or own == ""
            return text
        if kind is dict:
            if not self._is_cut and (type(value) is not dict or own.keys() != value.keys()):
                raise LookupError(name)
            given = value if type(value) is dict else {}
            if not all(key in given or _is_field(key, self._hidden) for key in own):  # behind the cut
                raise LookupError(name)
            return {key: self._merge(key, one, given.get(key)) for key, one in own.items()}
        if kind is list:
            if type(value) is not list or (len(value) != len(own) and not self._is_cut):
                return [] if self._is_cut else _raise(name)
            return [self._merge(name, one, given) for one, given in zip(own, value, strict=False)]
        if kind is bool or own is None:
            return own
        self._is_sure &= type(value) is kind
        return value if type(value) is kind else 0


def _raise(name: str) -> Any:
    raise LookupError(name)


def _blank(own: Any, hidden: frozenset[str]) -> Any:
    """Return a value of the same form that holds nothing; it keeps the names of fields alone."""
    kind = type(own)
    if kind is dict:
        return {
            name: one if name in _FIXED and type(one) is str and one in _KINDS else _blank(one, hidden)
            for name, one in own.items()
            if _is_field(name, hidden) and name not in _COPIES
        }
    if kind is list:
        return []
    if kind is bool or own is None:
        return own
    return "" if kind is str else 0


def _is_field(name: str, hidden: frozenset[str]) -> bool:
    return _FIELD.fullmatch(name) is not None and not any(part in name for part in hidden)


def _put(form: Any, words: str) -> Any:
    if type(form) is dict:
        return {name: _put(one, words) for name, one in form.items()}
    if type(form) is list:
        return [_put(one, words) for one in form]
    return (words or EMPTY) if form == _PLACE else form


def _add(value: Any, mark: str) -> Any:
    """Return an output with a mark at the end of its longest text."""
    if not mark:
        return value
    if type(value) is str:
        return f"{value}\n{mark}"
    if type(value) is list:
        return [*value, {"type": "text", "text": mark}] if _are_blocks(value) else value
    if type(value) is not dict:
        return value
    texts = {name: len(one) for name, one in value.items() if type(one) is str and name not in _FIXED}
    if texts:
        longest = max(texts, key=lambda name: texts[name])
        return {**value, longest: f"{value[longest]}\n{mark}"}
    inner = next((name for name, one in value.items() if type(one) in (dict, list)), None)
    return value if inner is None else {**value, inner: _add(value[inner], mark)}
