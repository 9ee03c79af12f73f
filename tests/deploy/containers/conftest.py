"""An engine for these tests, with the images on which the fleet is built: one for all of them."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from base_images import provide_images
from container_engine import Engine, engine
from debian_packages import NotHereError
from guarded_server import required


@pytest.fixture(scope="session")
def docker() -> Iterator[Engine]:
    """The engine; without one the tests say why they are skipped."""
    with ExitStack() as stack:
        try:
            found = stack.enter_context(engine())
            provide_images(found)
        except NotHereError as error:
            required(f"an engine of containers ({error})")
        yield found
