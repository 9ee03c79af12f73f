"""The turn engine: what every loop shares, from the prompt to the answer."""
