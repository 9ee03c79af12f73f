"""The requests of one turn to its LLM."""
