"""A scheduler of many policies: the label `policy` of a call says by which it is ruled on. For attacks."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from disguises import policy_of
from pydantic import BaseModel
from toolgate_schedulers.shipped.policy.scheduler import PolicyConfig, rule_on


class Seed(BaseModel):
    """Where the policies come from."""

    seed: int


class Policies:
    """Rules by the policy of this number, as a process of `policy` with its file would."""

    name = "policy"
    tools = ("*",)
    config_model = Seed

    def __init__(self, config: Seed) -> None:
        self.seed = config.seed
        self.made: dict[str, PolicyConfig] = {}

    async def decide(self, call):
        number = call.labels["policy"]
        if number not in self.made:
            self.made[number] = PolicyConfig.model_validate(policy_of(self.seed, int(number)))
        return rule_on(self.made[number], call)
