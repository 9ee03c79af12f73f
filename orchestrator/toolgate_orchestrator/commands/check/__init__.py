"""`toolgate check`: finds the tools of an agent object that no gate rules on, and says why."""
