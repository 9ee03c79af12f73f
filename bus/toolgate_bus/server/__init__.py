"""Find the server of the bus, or run the embedded server."""
