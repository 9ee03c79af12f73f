"""Moves images of tool results into a user message behind the results, so that every provider can send them.

A result is stored with its images. Most APIs accept only text as a result, and most providers pass a list on
as it is. So in a request each result becomes its text, and its images follow after the last result.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

INTRODUCTION: Final = "Images of the tool results above:"
_NO_TEXT: Final = "(images, see below)"


def lift_images(messages: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the messages of a request; messages without results stay as they are."""
    images: list[Any] = []
    for message in messages:
        is_result = message.get("role") == "tool"
        if images and not is_result:
            yield _image_message(images)
            images = []
        content = message.get("content")
        if not is_result or not isinstance(content, list) or not all(map(_is_shown, content)):
            yield message
            continue
        texts = [str(block.get("text", "")) for block in content if block["type"] == "text"]
        images += [block for block in content if block["type"] == "image"]
        yield {**message, "content": "\n\n".join(filter(None, texts)) or (_NO_TEXT if content else "")}
    if images:
        yield _image_message(images)


def _is_shown(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in ("text", "image")


def _image_message(images: Sequence[Any]) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": INTRODUCTION}, *images]}
