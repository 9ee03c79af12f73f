"""The file `roles`: one section a role, one rule a line, and above it what the rule is for (`# to …`).

It stands alone: deploy/redis/make_acl.py loads it by its path, with any Python ≥ 3.9 and nothing installed.
"""

from typing import NamedTuple


class Rule(NamedTuple):
    """One line of a role."""

    to: str
    """What for, in words."""
    text: str
    """As ACL SETUSER reads it, `@NS@` and `@NAME@` still in it; or `= role`, whose rules it builds on."""


def read_roles(text: str) -> dict[str, list[Rule]]:
    """Sections by name, comments left out; raises ValueError for a rule that stands in none."""
    sections: dict[str, list[Rule]] = {}
    current, to = None, "work"
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if line.startswith("[") and line.endswith("]"):
            current, to = sections.setdefault(line[1:-1], []), "work"
        elif line.startswith("# to "):
            to = line[len("# to ") :]
        elif line and not line.startswith("#"):
            if current is None:
                raise ValueError(f"line {number}: stands before the first [role]")
            current.append(Rule(to, line))
    return sections


def rules_of(sections: dict[str, list[Rule]], role: str) -> list[Rule]:
    """The rules of a role, with those of the roles that it builds on; raises KeyError where there is none."""
    found = []
    for rule in sections[role]:
        found += rules_of(sections, rule.text[2:].strip()) if rule.text.startswith("= ") else [rule]
    return found
