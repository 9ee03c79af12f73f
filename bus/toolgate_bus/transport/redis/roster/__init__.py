"""The roster: who is alive, in which namespace and shard."""
