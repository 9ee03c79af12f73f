"""The turn engine that all loops share, from the prompt to the answer."""
