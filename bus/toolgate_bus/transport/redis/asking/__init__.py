"""The orchestrator's side: write questions and facts, and read verdicts and orders."""
