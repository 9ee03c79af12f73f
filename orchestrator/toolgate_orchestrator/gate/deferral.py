"""A question to a person that is answered later, perhaps in another process."""

from typing import Literal, NamedTuple


class PersonAnswer(NamedTuple):
    """What a person said to a question that was put off."""

    token: str
    answer: Literal["allow", "refuse", "expired"]
    by: str = ""
