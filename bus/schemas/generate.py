"""Writes the JSON Schemas of the wire beside this file, from the models that read and write it.

    python bus/schemas/generate.py

A test compares them with what stands there. They say what JSON Schema can say: sizes in bytes, depth
and the number of nodes are in `docs/reference/wire.md` (Limits), and a reader must check those as well.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.codec import MAX_START
from toolgate_bus.protocol.events import (
    AskUser,
    Continue,
    Deny,
    Failure,
    Hold,
    Mask,
    Modify,
    Replace,
    ToolSelecting,
)
from toolgate_bus.protocol.revision import MAX_REVISION
from toolgate_bus.transport.ports import Member

HERE = Path(__file__).parent
DIALECT = "https://json-schema.org/draft/2020-12/schema"
VERDICTS = (Continue, Deny, Modify, AskUser, Hold, Mask, Replace, Failure)
ON_RESULTS = ("Mask", "Replace")
"""Verdicts on results alone, which only version 2 has."""
NEWER_FIELDS = (
    *("fence", "request", "result", "result_form", "success", "result_cut", "session_labels"),
    "required_labels",
)
"""Fields that only version 2 has."""
LARGEST = {"minimum": -(2**63), "maximum": 2**64 - 1}
NOT_SENT = {"name", "replica", "age", "extra", "signed", "proof", "gone"}
"""Fields of a Member that its heartbeat does not hold: the key names the first two."""
SINCE_2 = {
    *("wire", "phases", "kinds", "reads", "build", "revision", "server_replicas", "shards", "beat", "at"),
    *("left", "table"),
}
"""Fields that only readers of version 2 look for."""


def bounded(node: Any) -> Any:
    """The same schema with the wire's limits wherever it says nothing narrower; without titles."""
    if isinstance(node, list):
        return [bounded(one) for one in node]
    if not isinstance(node, dict):
        return node
    kept = {key: bounded(value) for key, value in node.items() if key != "title" or isinstance(value, dict)}
    limits: dict[Any, dict[str, int]] = {
        "string": {"maxLength": packing.MAX_STRING} if "const" not in node and "enum" not in node else {},
        "array": {"maxItems": packing.MAX_ENTRIES},
        "object": {"maxProperties": packing.MAX_ENTRIES} if "properties" not in node else {},
        "integer": LARGEST,
    }
    kind = node.get("type")
    return {**(limits.get(kind, {}) if isinstance(kind, str) else {}), **kept}


def question() -> dict[str, Any]:
    """The body of `tool:selecting`."""
    schema = ToolSelecting.model_json_schema()
    for name in ("id", "again"):  # they stand in the item
        del schema["properties"][name]
    schema["properties"]["phase"].pop("default")
    form = {"enum": ["text", "json"], "type": "string"}
    fields = {"result_form": form, **schema["properties"]}
    fields["result"] = {"description": "Binary: UTF-8 text, or JSON, as `result_form` says."}
    schema["properties"] = {name: fields[name] for name in (*schema["properties"], "result_form")}
    schema["required"] = ["phase", "tool_name"]
    return schema


def verdict() -> dict[str, Any]:
    """The body of a verdict."""
    _, defined = models_json_schema([(model, "validation") for model in VERDICTS])
    for model in VERDICTS:
        schema = defined["$defs"][model.__name__]
        schema["properties"]["action"].pop("default")
        schema["required"] = ["action", *(name for name in schema.get("required", []) if name != "action")]
    return {"oneOf": [{"$ref": f"#/$defs/{model.__name__}"} for model in VERDICTS], **defined}


def older(schema: dict[str, Any]) -> dict[str, Any]:
    """The same in version 1: nobody is asked in `admit` or `result`, nor told the user's request."""
    made = {
        key: older(value) if isinstance(value, dict) else value
        for key, value in schema.items()
        if key not in ON_RESULTS
    }
    if "oneOf" in made and all("$ref" in one for one in made["oneOf"]):
        made["oneOf"] = [one for one in made["oneOf"] if one["$ref"].rpartition("/")[2] not in ON_RESULTS]
    if "phase" in made.get("properties", {}):
        phases = made["properties"]["phase"]["enum"]
        made["properties"]["phase"]["enum"] = [one for one in phases if one not in ("admit", "result")]
    for name in NEWER_FIELDS:
        made.get("properties", {}).pop(name, None)
    return made


def newer(schema: dict[str, Any]) -> dict[str, Any]:
    """The same in version 2: fields that nobody knows are passed over."""
    made = {key: newer(value) if isinstance(value, dict) else value for key, value in schema.items()}
    if made.get("additionalProperties") is False:
        del made["additionalProperties"]
    return made


def newer_verdict() -> dict[str, Any]:
    """The body of a verdict of version 2."""
    made = newer(verdict())
    for schema in (made["$defs"][model.__name__] for model in VERDICTS):
        schema["properties"]["revision"] = {"type": "string", "maxLength": MAX_REVISION}
        schema["properties"]["start"] = {"type": "string", "maxLength": MAX_START}
    return made


def withdrawn() -> dict[str, Any]:
    """The body of `tool:withdrawn`."""
    phase = question()["properties"]["phase"]
    return {
        "type": "object",
        "properties": {"phase": phase},
        "required": ["phase"],
        "additionalProperties": False,
    }


def heartbeat(without: set[str] = SINCE_2) -> dict[str, Any]:
    """What a scheduler's replica keeps on the roster; readers pass over fields that they do not know."""
    schema = TypeAdapter(Member).json_schema()
    fields = {name: value for name, value in schema["properties"].items() if name not in NOT_SENT | without}
    fields["tools"].pop("default")
    if "revision" in fields:  # a tuple here, a map there
        text = {"type": "string"}
        fields["revision"] = {"type": "object", "properties": {"label": text, "digest": text}}
    return {"type": "object", "properties": fields, "required": ["tools"]}


ABOUT = {
    "question": ("tool:selecting: the body of a question", question),
    "withdrawn": ("tool:withdrawn: the body of a question that nobody waits for any longer", withdrawn),
    "verdict": ("The body of a verdict", verdict),
    "heartbeat": ("The heartbeat of a scheduler's replica on the roster", heartbeat),
}
NEWER = {
    "question": lambda: newer(question()),
    "withdrawn": lambda: newer(withdrawn()),
    "verdict": newer_verdict,
    "heartbeat": lambda: heartbeat(without=set()),  # what it says there in `v2`
}


def texts() -> dict[str, str]:
    """The text of each schema, by its file's name."""
    written = {}
    for name, (about, make) in ABOUT.items():
        kinds = ((packing.VERSION, "", older(make())), (packing.NEWEST, "v2/", NEWER[name]()))
        for version, folder, made in kinds:
            head = {"$schema": DIALECT, "title": f"{about}. Toolgate's wire, version {version}"}
            made.pop("description", None)
            text = json.dumps({**head, **bounded(made)}, indent=1, ensure_ascii=False)
            written[f"{folder}{name}.json"] = f"{text}\n"
    return written


if __name__ == "__main__":
    for name, text in texts().items():
        (HERE / name).parent.mkdir(exist_ok=True)
        (HERE / name).write_text(text, encoding="utf-8")
