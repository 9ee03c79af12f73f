"""A scheduler that denies with its configuration's mark, after a while."""

import asyncio
from typing import Annotated, Literal

from pydantic import BaseModel, Field
from toolgate_schedulers import Deny, ToolSelecting


class Marks(BaseModel):
    """What its file may say."""

    mark: str
    kind: Literal["plain", "fancy"] = "plain"
    after: Annotated[float, Field(ge=0)] = 0.0
    priority: int = 0
    tools: tuple[str, ...] = ("*",)
    start: Literal["well", "badly"] = "well"


class Marked:
    """Reads its mark before and after it waited: it must be the same."""

    name = "marked"
    config_model = Marks

    def __init__(self, config: Marks) -> None:
        self.config, self.priority, self.tools = config, config.priority, config.tools

    async def start(self, context: object) -> None:
        """Start, or not."""
        if self.config.start == "badly":
            raise OSError("no licence")

    async def decide(self, call: ToolSelecting) -> Deny:
        """Deny with the mark."""
        before = self.config.mark
        await asyncio.sleep(self.config.after)
        return Deny(reason=f"{before}={self.config.mark}")
