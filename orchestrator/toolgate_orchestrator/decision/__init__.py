"""The gate: asks schedulers about one call, waits, merges. Knows nothing of Amplifier."""
