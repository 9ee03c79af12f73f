"""Images that tools gave, as every provider can send them: in a message of the user's behind the results.

A result is stored with its images. Most APIs take a text alone as a result, and most providers send on a
list as it is. So in a request each result is its text, and its images follow once no result does.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

INTRODUCTION: Final = "Images of the tool results above:"
_NO_TEXT: Final = "(images, see below)"


def lift_images(messages: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The messages of a request, those that hold no results as they are."""
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
