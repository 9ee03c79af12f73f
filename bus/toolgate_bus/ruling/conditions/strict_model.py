"""The base of every model that a configuration is read by. Pure."""

from pydantic import BaseModel, ConfigDict

__all__ = ["StrictModel"]


class StrictModel(BaseModel):
    """A part of a configuration: frozen, unknown keys refused, values never echoed in errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=False, hide_input_in_errors=True)
