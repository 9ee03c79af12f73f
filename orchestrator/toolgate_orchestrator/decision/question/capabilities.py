"""What a caller can do with a ruling. Pure.

A program that cannot run another tool, or change arguments, or ask a person, says so (`can=`). Who answers
with what it cannot do has, in effect, denied the call (`inability`).
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, get_args

from toolgate_bus.errors import ConfigError

Ability = Literal["arguments", "tool", "ask"]
"""`arguments`: run the call with others. `tool`: run another tool. `ask`: have a person asked."""
ALL: Final[frozenset[Ability]] = frozenset(get_args(Ability))
AMBIGUOUS: Final[Mapping[str, Any]] = {"not": {}}
"""Stands for the schema of a name that two functions of a program bear: nothing may run by it."""


def check_abilities(can: Collection[str]) -> frozenset[Ability]:
    """The abilities of these names; raises ConfigError for one that there is not."""
    if type(can) is frozenset and can <= ALL:
        return can
    unknown = sorted(frozenset(can) - ALL)
    if unknown:
        raise ConfigError(f"can: {', '.join(map(repr, unknown))}: there are {', '.join(sorted(ALL))}")
    return frozenset(ability for ability in ALL if ability in can)


class UnnamedTools(tuple[str, ...]):
    """One tool, of a caller that did not say which others there are: what is put in its place may be one.

    It is for callers that cannot run another: one that is wanted denies the call then. As one that is not
    there it would be set aside, and the call would run unchanged.
    """

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return True
