"""Where exporters keep what was counted, on a real server."""

from typing import Any

from toolgate_bus.commands.exporter.checkpoint import CheckpointStore, ExporterCheckpoint
from toolgate_bus.commands.exporter.fleet import FleetCounts
from toolgate_bus.protocol.keys import Keys


async def test_the_shelf_on_a_server_takes_what_was_counted_unless_another_has_led_since(
    commands: Any, namespace: str
) -> None:
    slow, other = (CheckpointStore(commands, namespace, name) for name in ("slow", "other"))
    kept = ExporterCheckpoint(FleetCounts().text(), {"o": "1-0"})
    assert await slow.lead()
    await commands.execute("DEL", f"{Keys(namespace).store_key('exporter')}:leader")  # it ran out
    assert await slow.keep(kept)
    assert await slow.read() == kept
    assert not await other.lead()
    await slow.leave()
    assert await other.lead()
    await other.leave()
    assert not await slow.keep(ExporterCheckpoint(kept.text, {}))
    assert not await slow.keep()
    assert await slow.read() == kept
