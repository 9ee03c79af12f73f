"""Plain values of a turn: messages, calls, results."""
