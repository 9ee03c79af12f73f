"""Where a framework runs its agents' tools, a guard rules on them first: one module a framework, one line for
its user; each needs that framework (an extra of the same name), and nothing here imports another's."""
