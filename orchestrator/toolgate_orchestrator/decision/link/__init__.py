"""The bus as all gates of a process share it: schedulers, live sessions, pauses."""
