"""The hooks of a session, as a turn meets them."""
