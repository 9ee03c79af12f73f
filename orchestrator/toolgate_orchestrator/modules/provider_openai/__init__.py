"""Amplifier provider module `provider-openai-compatible`."""
