"""`toolgate scheduler search`: show the installed schedulers, and the schema of each configuration."""

import json
from typing import Annotated

import typer
from toolgate_bus.commands.completion import complete_installed
from toolgate_bus.commands.options import JsonOption, console, err_console
from toolgate_bus.commands.terminal import print_json, print_text


def search(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]...", help="Only those with all of these words.")
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Print the JSON Schema of this scheduler's configuration, for editors.",
            autocompletion=complete_installed,
        ),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Show the installed schedulers: package, version, wire, and purpose.

    \b
      toolgate scheduler search budget
      toolgate scheduler search --schema policy > policy.schema.json

    With a line `# yaml-language-server: $schema=policy.schema.json` at the top of a
    configuration most editors complete and check it.
    """
    from toolgate_schedulers.commands.scheduler_catalog import (  # here: it loads every scheduler there is
        as_json,
        find_installed,
        matches,
        schema_of,
        table_of,
    )

    if schema is not None:
        print_text(json.dumps(schema_of(schema), indent=2, ensure_ascii=False))
        return
    found = [one for one in find_installed() if matches(one, words or ())]
    if json_:
        for one in found:
            print_json(as_json(one))
    elif found:
        console.print(table_of(found))
    else:
        err_console.print("No installed scheduler has all of these words.")
        raise typer.Exit(1)
