"""A person's answer to a question that was deferred; it may arrive in another process."""

from typing import Literal, NamedTuple


class PersonAnswer(NamedTuple):
    """A person's answer to a deferred question. It resumes exactly the decision that the token names."""

    token: str
    """Token of the decision (`Decision.token`)."""
    answer: Literal["allow", "refuse", "expired"]
    by: str = ""
    """Name of the person who answered, for the record."""
