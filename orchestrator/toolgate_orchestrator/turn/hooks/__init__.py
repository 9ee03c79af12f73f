"""The hooks of a session in a turn."""
