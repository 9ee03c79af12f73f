"""What a program needs that hosts a session: the plan, the terminal, processes, rulings."""
