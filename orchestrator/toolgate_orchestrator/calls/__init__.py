"""The life of a call, the same at every door: ask, rule, run, report, stop."""
