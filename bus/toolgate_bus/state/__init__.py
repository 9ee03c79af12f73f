"""State that the schedulers of a fleet share: counters, token buckets, notifications."""
