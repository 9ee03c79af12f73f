"""`toolgate demo`: one agent, three schedulers, five calls, on real parts."""
