"""Rules that fit what ran: calls in, rules and a file of them out."""
