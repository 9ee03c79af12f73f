"""`toolgate notify`: what people should know of a fleet, posted to webhooks, each once.

`incident` is something that happened, `judges` find them in what `sources` read; `grouping` makes
notifications of incidents, `message` their bytes, `sender` and `webhook` post them. `memory` is all that must
outlast the process, and `outbox` keeps it on the server of the bus, under a lease; `service` is the loop,
`cli` the command.
"""
