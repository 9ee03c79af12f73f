"""`toolgate report`: what was spent, saved, denied and held, and by whom."""
