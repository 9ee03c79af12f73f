"""`toolgate notify`: post what people should know of a fleet to webhooks, each thing once.

`incident` is one thing that happened, `judges` find incidents in what `sources` read; `grouping` makes
notifications of incidents, `message` their bytes, `sender` and `webhook` post them. `memory` is all that must
outlast the process, and `outbox` keeps it on the server of the bus, under a lease; `service` is the loop,
`cli` the command.
"""
