"""Parts for a program that hosts a session: plan, terminal, processes, rulings."""
