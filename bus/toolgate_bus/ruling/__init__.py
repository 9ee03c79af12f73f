"""Rulings: the merge of verdicts, the round of one question, the breaker. Pure: time is an argument."""
