"""The gate for any program: `Guard`, from whatever thread, event loop or framework; no amplifier_core in
here."""
