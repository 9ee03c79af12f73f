"""What these programs share: a guard, what they call, what they say at their end. None closes its guard."""

import json
import os
import sys
import threading
from decimal import Decimal

from toolgate_orchestrator import Call, Guard

NAME, COUNT = sys.argv[1], int(sys.argv[2])
PRICE = Decimal("0.03")
TOOLS = {"pay": {"type": "object"}, "forbidden": {"type": "object"}}
guard = Guard(
    agent=NAME,
    redis=os.environ["TOOLGATE_REDIS_URL"],
    namespace=os.environ["TOOLGATE_NAMESPACE"],
    required=["policy", "cost-aware"],
    patience_ms=20_000,
    cost=lambda result: result["cost"],
)
at = guard.at(f"{NAME}-session")
_lock = threading.Lock()
_counts = {"ran": 0, "denied": 0}


def call(number):
    """The call of this number; each tenth is one that the rules deny."""
    tool = "forbidden" if number % 10 == 9 else "pay"
    return Call(tool, {"number": number}, TOOLS, at, id=f"call-{number}")


def execute(tool, arguments):
    """The tool itself."""
    assert tool == "pay"
    with _lock:
        _counts["ran"] += 1
    return {"cost": PRICE, "number": arguments["number"]}


async def execute_later(tool, arguments):
    """The same, async."""
    return execute(tool, arguments)


def denied(ruling):
    """What the LLM would be told."""
    assert ruling.refusal.startswith("The tool call was denied: never this"), ruling.refusal
    with _lock:
        _counts["denied"] += 1
    return ruling.refusal


def say():
    """What came of it."""
    print(json.dumps(_counts))
