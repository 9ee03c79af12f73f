"""The score of alternatives, which `cost-aware`, `heuristic` and `router` share."""
