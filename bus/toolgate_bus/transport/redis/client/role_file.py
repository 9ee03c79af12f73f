"""Reads the file `roles`: one section for each role, one rule on each line, its purpose above it (`# to …`).

It stands alone: deploy/redis/make_acl.py loads it by its path, with any Python ≥ 3.9 and nothing installed.
"""

from typing import NamedTuple


class Rule(NamedTuple):
    """One line of a role."""

    to: str
    """Purpose, in words."""
    text: str
    """Rule for ACL SETUSER, with `@NS@` and `@NAME@` still in it; or `= role`, which includes a role."""


def read_roles(text: str) -> dict[str, list[Rule]]:
    """Return the sections by name, without comments. Raises ValueError for a rule outside a section."""
    sections: dict[str, list[Rule]] = {}
    current, to = None, "work"
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if line.startswith("[") and line.endswith("]"):
            current, to = sections.setdefault(line[1:-1], []), "work"
        elif line.startswith("# to "):
            to = line[len("# to ") :]
        elif line and not line.startswith("#"):
            if current is None:
                raise ValueError(f"line {number}: this rule stands before the first [role]")
            current.append(Rule(to, line))
    return sections


def rules_of(sections: dict[str, list[Rule]], role: str) -> list[Rule]:
    """Return the rules of a role, with those of roles that it includes. Raises KeyError if it is unknown."""
    found = []
    for rule in sections[role]:
        found += rules_of(sections, rule.text[2:].strip()) if rule.text.startswith("= ") else [rule]
    return found
