"""Adapters that have a guard rule on the tool calls of an agent framework.

Each framework has a folder, and its user adds one line. Each folder needs its framework (the extra of the
same name) and imports no other one: `adapter` with what it is made of, and `check`, which finds the tools
of an agent that no gate is in front of.
"""
