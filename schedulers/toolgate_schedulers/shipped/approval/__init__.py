"""The scheduler `approval`: a person decides."""
