"""Questions to a person that wait without their asker: what is answered, and the token that names it."""

from typing import Literal, NamedTuple


class PersonAnswer(NamedTuple):
    """What a person said to a question that was deferred (`Decision.token`)."""

    token: str
    answer: Literal["allow", "refuse", "expired"]
    by: str = ""
    """Who said it, for the record."""
