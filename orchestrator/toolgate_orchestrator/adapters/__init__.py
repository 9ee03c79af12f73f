"""Adapters that have a guard rule on the tool calls of an agent framework.

Each framework has one module, and its user adds one line. Each module needs its framework (the extra of the
same name) and imports no other one.
"""
