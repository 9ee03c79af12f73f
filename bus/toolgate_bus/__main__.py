"""`python -m toolgate_bus`: the `toolgate` command."""

from toolgate_bus.commands.main import main

if __name__ == "__main__":
    main()
