"""Who is alive, in which namespace and shard."""
