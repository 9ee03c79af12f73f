"""A ChatRequest as the parameters of one chat completion. Pure.

Options given to `complete` and `stream` count before the request's fields, those before the config.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amplifier_core import ChatRequest, ToolSpec
from amplifier_core.message_models import ResponseFormatJson, ResponseFormatJsonSchema

from toolgate_orchestrator.modules.provider_openai.config import OpenAIConfig
from toolgate_orchestrator.modules.provider_openai.messages import Dialect, ToolNames, names_in, wire_messages

_FIELDS = (
    "model",
    "temperature",
    "top_p",
    "max_output_tokens",
    "tool_choice",
    "stop",
    "response_format",
    "reasoning_effort",
    "timeout",
)
_CHOICES = {"auto": "auto", "none": "none", "required": "required", "any": "required"}


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, ready to be sent."""

    params: dict[str, Any]
    names: ToolNames
    model: str
    timeout: float | None
    """Seconds for the whole of it, retries included; None: no limit but the server's silence."""


def build_request(
    request: ChatRequest, options: Mapping[str, Any], config: OpenAIConfig, length_field: str
) -> Ask:
    """The parameters for a request; `length_field` is the server's name for the longest answer."""
    wanted = _resolve_fields(request, options, config)
    names = ToolNames([*(tool.name for tool in request.tools or ()), *names_in(request.messages)])
    dialect = Dialect(config.developer_role, config.reasoning_field)
    params: dict[str, Any] = {
        "model": wanted["model"],
        "messages": wire_messages(request.messages, names, dialect),
        **_tools(request.tools, wanted.get("tool_choice"), names),
        **{key: wanted[key] for key in ("temperature", "top_p", "stop", "reasoning_effort") if key in wanted},
    }
    if "max_output_tokens" in wanted:
        params[length_field] = wanted["max_output_tokens"]
    if form := _response_format(wanted.get("response_format")):
        params["response_format"] = form
    if config.extra_body:
        params["extra_body"] = dict(config.extra_body)
    return Ask(params, names, wanted["model"], wanted.get("timeout"))


def _resolve_fields(request: ChatRequest, options: Mapping[str, Any], config: OpenAIConfig) -> dict[str, Any]:
    """Each field's value, from the first place that has one."""
    configured = {
        "model": config.model,
        "temperature": config.temperature,
        "max_output_tokens": config.max_output_tokens,
        "reasoning_effort": config.reasoning_effort if options.get("extended_thinking") is True else None,
    }
    wanted = {}
    for field in _FIELDS:
        places = (options.get(field), getattr(request, field, None), configured.get(field))
        value = next((each for each in places if each is not None), None)
        if value is not None and value != []:
            wanted[field] = value
    return wanted


def _tools(tools: list[ToolSpec] | None, choice: Any, names: ToolNames) -> dict[str, Any]:
    """Tools and which of them must be called; a choice without tools would be refused."""
    if not tools:
        return {}
    wire: dict[str, Any] = {"tools": [_tool(tool, names) for tool in tools]}
    if (chosen := _choice(choice, names)) is not None:
        wire["tool_choice"] = chosen
    return wire


def _tool(tool: ToolSpec, names: ToolNames) -> dict[str, Any]:
    function: dict[str, Any] = {
        "name": names.safe(tool.name),
        "parameters": tool.parameters or {"type": "object", "properties": {}},
    }
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _choice(choice: Any, names: ToolNames) -> Any:
    """`auto`, `none`, `required`, or one tool by its name, however that is written."""
    if isinstance(choice, Mapping):
        function = choice.get("function")
        named = (function if isinstance(function, Mapping) else choice).get("name")
        choice = named if isinstance(named, str) else choice.get("type")
    if not isinstance(choice, str) or not choice:
        return None
    if choice in _CHOICES:
        return _CHOICES[choice]
    return {"type": "function", "function": {"name": names.safe(choice)}}


def _response_format(form: Any) -> dict[str, Any] | None:
    if isinstance(form, ResponseFormatJson):
        return {"type": "json_object"}
    if isinstance(form, ResponseFormatJsonSchema):
        given = form.json_schema
        schema = given if isinstance(given.get("schema"), Mapping) else {"name": "response", "schema": given}
        strict = {} if form.strict is None else {"strict": form.strict}
        return {"type": "json_schema", "json_schema": {"name": "response", **schema, **strict}}
    return dict(form) if isinstance(form, Mapping) and form.get("type") != "text" else None
