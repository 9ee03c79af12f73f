"""The life of a call, which every door goes through: who asks, rule, run, report, stop."""
