"""Slots: what is scarce, who has it, and in which turn the others wait."""
