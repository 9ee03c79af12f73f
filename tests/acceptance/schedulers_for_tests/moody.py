"""A scheduler that cannot start by some configurations, which no check can tell beforehand."""

from pydantic import BaseModel
from toolgate_schedulers import Continue, Deny


class Mood(BaseModel):
    """`well` lets all pass, `strict` denies all, `ill` cannot start."""

    mood: str = "well"


class Moody:
    name = "moody"
    config_model = Mood

    def __init__(self, config):
        self.config = config

    async def start(self, context):
        if self.config.mood == "ill":
            raise RuntimeError("too ill to rule")

    async def decide(self, call):
        return Deny(reason="strict") if self.config.mood == "strict" else Continue()
