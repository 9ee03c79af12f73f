"""Which tools of an agent object are not gated: a module a framework, beside its adapter."""
