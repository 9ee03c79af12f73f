"""Images of results follow as the user's, behind the last result."""

from typing import Any

import pytest
from toolgate_orchestrator.turn.values.result_images import INTRODUCTION, lift_images

pytestmark = pytest.mark.pure

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
USER = {"role": "user", "content": [IMAGE]}


def result(*blocks: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "c1", "content": list(blocks)}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def test_the_images_of_several_results_follow_the_last_one() -> None:
    sent = list(lift_images([USER, result(text("A"), IMAGE), result(text("B"), IMAGE), USER]))
    assert [message["role"] for message in sent] == ["user", "tool", "tool", "user", "user"]
    assert [message["content"] for message in sent[1:3]] == ["A", "B"]
    assert sent[3]["content"] == [text(INTRODUCTION), IMAGE, IMAGE]
    assert (sent[0], sent[4]) == (USER, USER)


def test_images_of_the_latest_results_are_the_last_message() -> None:
    *_, last = lift_images([result(IMAGE)])
    assert last["content"][1:] == [IMAGE]


def test_texts_of_a_result_are_one() -> None:
    (sent,) = lift_images([result(text("A"), text("B"))])
    assert sent["content"] == "A\n\nB"


@pytest.mark.parametrize("content", ["A", None, [{"type": "other"}], ["A"]])
def test_what_is_no_list_of_texts_and_images_stays(content: Any) -> None:
    message = {"role": "tool", "tool_call_id": "c1", "content": content}
    assert list(lift_images([message])) == [message]
