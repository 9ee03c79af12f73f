"""`toolgate exporter`: the fleet's metrics out of the facts streams, exact over restarts.

`fleet` counts facts, and what replacements saved; `gauges` reads what the server knows. `service`, the loop,
keeps the counts together with the positions up to which facts were read. `cli` is the command.
"""
