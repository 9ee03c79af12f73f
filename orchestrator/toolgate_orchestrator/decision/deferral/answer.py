"""A question to a person that is answered later, perhaps in another process: what its answer is."""

from typing import Literal, NamedTuple


class PersonAnswer(NamedTuple):
    """What a person said to a question that was deferred: it goes on with exactly that decision."""

    token: str
    """That of the decision (`Decision.token`)."""
    answer: Literal["allow", "refuse", "expired"]
    by: str = ""
    """Who said it, for the record."""
