"""What a service knows of notification types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TypeSpec:
    """One notification type."""

    producer: str
    """The one service that may publish it."""
    audiences: tuple[str, ...]
    """`user`, `admin_email`, or both."""
    fields: Mapping[str, Mapping[str, Any]]
    """Forms of the payload's fields as JSON Schema, in the order of their checks. Further fields pass through."""
    required: tuple[str, ...]
    is_retired: bool = False
    """It is refused."""


Catalog = Mapping[str, TypeSpec]
"""The types of a service by their names. `galaxy-notify catalog clients` writes one."""
