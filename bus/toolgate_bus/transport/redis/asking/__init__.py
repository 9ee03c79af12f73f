"""The orchestrator's half: questions and facts go out, verdicts and orders come in."""
