"""The rounds in which schedulers answer."""
