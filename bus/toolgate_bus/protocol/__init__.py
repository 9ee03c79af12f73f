"""Messages: events, their bytes, signatures, and the names of keys. Pure."""
