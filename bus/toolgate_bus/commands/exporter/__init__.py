"""`toolgate exporter`: the fleet's metrics out of the facts streams, exact over restarts.

`fleet` counts facts, and what replacements saved; `checkpoint` keeps what was counted together with how far
was read, `gauges` reads what the server knows, `service` is the loop, `cli` the command.
"""
