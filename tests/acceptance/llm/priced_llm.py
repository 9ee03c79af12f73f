"""An LLM on loopback that costs money: it answers whoever asks, tells what it used, and keeps the account.

It speaks OpenAI's chat completions, whole or as a stream of chunks, and tells tokens at random: never more
than were asked for. Each request it got is a `Bill` with what was told of it, whether the answer arrived
or not.
"""

import asyncio
import random
from dataclasses import dataclass
from fractions import Fraction
from time import time
from typing import Any

from openai_server import Exchange, Server, call, completion, finish, text, usage

PRICES: dict[str, dict[str, Any]] = {
    "large": {"input": 30, "output": 60, "cache_read": 3, "cache_in_input": True},
    "small": {"input": 5, "output": 40, "cache_in_input": True},
}
"""USD for a million tokens, which is micro-units for one."""


@dataclass
class Bill:
    """One request."""

    session: str
    model: str
    at: float
    """Seconds since the epoch."""
    cost: int
    """Micro-units, by the tokens that were told."""
    told: bool = False
    """Whether the whole answer was written."""


def cost_of(model: str, sent: int, answered: int, cached: int) -> int:
    """What these tokens cost in micro-units, rounded up; its own sum, not the product's."""
    price = PRICES[model]
    read = Fraction(str(price.get("cache_read", price["input"])))
    return -((-(sent - cached) * price["input"] - answered * price["output"] - cached * read) // 1)


class PricedLlm(Server):
    """Answers every request, now with a call of `pay` where that is offered, now with text."""

    def __init__(self) -> None:
        super().__init__()
        self.bills: list[Bill] = []
        self.default = self.reply

    async def reply(self, exchange: Exchange) -> None:
        """Answer one request."""
        self.requests.clear()  # bills are kept, and not whole conversations
        body = exchange.body
        letters = sum(len(str(one.get("content") or "")) for one in body["messages"])
        sent, answered = random.randint(1, max(1, letters // 4)), random.randint(1, body["max_tokens"])
        cached = random.randint(0, sent) if random.random() < 0.3 else 0
        model = body["model"]
        bill = Bill(exchange.headers["x-session"], model, time(), cost_of(model, sent, answered, cached))
        self.bills.append(bill)
        used = usage(sent, answered, prompt_tokens_details={"cached_tokens": cached})["usage"]
        await asyncio.sleep(random.expovariate(100))
        if body.get("stream"):
            await self._stream(exchange, used)
        else:
            await self._whole(exchange, used)
        bill.told = True

    async def _stream(self, exchange: Exchange, used: dict[str, Any]) -> None:
        await exchange.begin()
        if self._calls(exchange):
            pieces = [call(0, "{}", f"c{random.getrandbits(48):x}", "pay"), finish("tool_calls")]
        else:
            pieces = [text("I "), text("think."), finish()]
        for piece in pieces:
            await exchange.send(piece)
            await asyncio.sleep(0)
        await exchange.send({**finish(), "choices": [], "usage": used})
        await exchange.end()

    async def _whole(self, exchange: Exchange, used: dict[str, Any]) -> None:
        answer = completion("I think.", usage=used)
        function = {"name": "pay", "arguments": "{}"}
        made = {"id": f"c{random.getrandbits(48):x}", "type": "function", "function": function}
        message = {"tool_calls": [made]}
        if self._calls(exchange):
            answer = completion(None, message=message, finish_reason="tool_calls", usage=used)
        await answer(exchange)

    @staticmethod
    def _calls(exchange: Exchange) -> bool:
        return bool(exchange.body.get("tools")) and random.random() < 0.6
