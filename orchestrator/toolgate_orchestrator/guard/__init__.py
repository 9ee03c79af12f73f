"""The gate for any program: `Guard`, for all threads, event loops and frameworks, without amplifier_core."""
