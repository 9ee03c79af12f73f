"""`toolgate check`: which tools of an agent object are not gated, and why."""
