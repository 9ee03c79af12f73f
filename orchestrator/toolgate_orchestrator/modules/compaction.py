"""Fit a conversation into a token budget. Pure.

These messages stay: every system message, the first user message (the task) and the latest one, and the
newest messages that fit; older turns stay only as a whole. A tool call and its results are one piece: both
stay or both go. If even the newest piece is too large, the longest texts in it are shortened. Tokens are
estimated at four characters each.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

Message = dict[str, Any]

_CHARACTERS_PER_TOKEN = 4
_OVERHEAD = 4
_PINNED = ("system", "developer")
_MIN_LENGTH = 160
_THOUGHT = "thinking_block"
_CUT = "\n[… {count} characters left out …]\n"


def estimate_tokens(messages: Iterable[Message]) -> int:
    """Estimate the number of tokens of these messages."""
    total = 0
    for message in messages:
        content, calls = message.get("content"), message.get("tool_calls")
        length = len(content) if isinstance(content, str) else len(_json(content))
        length += len(_json(calls)) if calls else 0
        total += length // _CHARACTERS_PER_TOKEN + _OVERHEAD
    return total


def compact(messages: Sequence[Message], budget: int, target: int | None = None) -> list[Message]:
    """Return the messages to send, in their order; the given ones are not changed.

    If they do not fit the budget, older messages go until the rest fits `target`, which is the budget by
    default. Texts are shortened only for the budget. The result fits it, unless the system messages and the
    shortest form of the other required messages are already too large.
    """
    if estimate_tokens(messages) <= budget:
        return list(messages)
    # System messages, the first and the latest user message, the newest piece.
    kept = {index for index, message in enumerate(messages) if message.get("role") in _PINNED}
    users = [index for index, message in enumerate(messages) if message.get("role") == "user"]
    latest = users[-1] if users else None
    kept |= {*users[:1], *users[-1:]}
    others = [piece for piece in pieces(messages) if not set(piece) <= kept]
    newest = max(others, key=lambda piece: piece[-1], default=None)
    if newest is not None and (latest is None or newest[-1] > latest):
        kept |= set(newest)
    spent = estimate_tokens(messages[index] for index in kept)
    for group in _candidates(messages, kept, latest):
        spent += estimate_tokens(messages[index] for index in group)
        if spent > (budget if target is None else target):
            break
        kept |= set(group)
    return _shorten([messages[index] for index in sorted(kept)], budget)


def drop_loose_thoughts(
    before: Sequence[Message], sent: Sequence[Message]
) -> tuple[list[Message], Message | None]:
    """Return the messages to send without signed thoughts that stand behind something else than before.

    The newest message of the LLM keeps its thought if it has calls, as servers want one before calls whose
    results come. It is returned as well; its thought is loose too, and goes with the next answer.
    """
    pairs = enumerate(zip(before, sent, strict=False))
    same = next((at for at, (old, new) in pairs if old is not new), len(sent))
    newest = max((at for at, one in enumerate(sent) if one.get("role") == "assistant"), default=-1)
    loose = newest if newest >= same and sent[newest].get("tool_calls") else -1
    kept = [one if at < same or at == loose else drop_thought(one) for at, one in enumerate(sent)]
    return kept, kept[loose] if loose >= 0 else None


def drop_thought(message: Message) -> Message:
    """Return a message without its signed thoughts."""
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    left = [block for block in blocks if not _is_signed(block)]
    if _THOUGHT not in message and len(left) == len(blocks):
        return message
    kept = {key: value for key, value in message.items() if key != _THOUGHT}
    return kept if not blocks else kept | {"content": left or ""}


def _is_signed(block: Any) -> bool:
    kind = block.get("type") if isinstance(block, dict) else None
    return kind == "redacted_thinking" or (kind == "thinking" and bool(block.get("signature")))


def pieces(messages: Sequence[Message]) -> list[list[int]]:
    """Return the positions that belong together: a message, or a message with calls and all their results."""
    found: list[list[int]] = []
    owner: dict[str, list[int]] = {}
    for index, message in enumerate(messages):
        piece = owner.get(str(message.get("tool_call_id"))) if message.get("role") == "tool" else None
        if piece is None:
            piece = []
            found.append(piece)
        piece.append(index)
        calls, content = message.get("tool_calls"), message.get("content")
        listed = list(calls) if isinstance(calls, list) else []
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_call":
                listed.append(block)
        ids = (str(call["id"]) for call in listed if isinstance(call, dict) and "id" in call)
        owner |= dict.fromkeys(ids, piece)
    return found


def _candidates(messages: Sequence[Message], kept: set[int], latest: int | None) -> list[list[int]]:
    """Return the further pieces that may stay, newest first: those of the latest turn, then older turns as a
    whole."""
    rest = [piece for piece in pieces(messages) if not set(piece) & kept]
    if latest is None:
        return sorted(rest, key=lambda piece: piece[-1], reverse=True)
    own = sorted((piece for piece in rest if piece[0] > latest), key=lambda piece: piece[-1], reverse=True)
    turns: list[list[int]] = [[]]
    for piece in rest:
        if piece[0] < latest:
            if messages[piece[0]].get("role") == "user" and turns[-1]:
                turns.append([])
            turns[-1] += piece
    return [*own, *(turn for turn in reversed(turns) if turn)]


def _shorten(messages: list[Message], budget: int) -> list[Message]:
    """Cut the longest texts until they fit; system messages stay as they are."""
    while (over := estimate_tokens(messages) - budget) > 0:
        lengths = [0 if each.get("role") in _PINNED else len(_cuttable(each)) for each in messages]
        longest = max(range(len(messages)), key=lengths.__getitem__, default=0)
        if not messages or lengths[longest] <= _MIN_LENGTH:
            break
        keep = max(_MIN_LENGTH // 2, lengths[longest] - over * _CHARACTERS_PER_TOKEN - len(_CUT) - 12)
        text, head = _cuttable(messages[longest]), keep * 2 // 3
        tail = text[len(text) - (keep - head) :]
        cut = text[:head] + _CUT.format(count=len(text) - keep) + tail
        messages[longest] = {**messages[longest], "content": cut}
    return messages


def _cuttable(message: Message) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""


def _json(value: Any) -> str:
    return "" if value is None else json.dumps(value, default=str, ensure_ascii=False)
