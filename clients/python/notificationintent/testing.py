"""A stream in memory for the tests of producers: it refuses what the service refuses, and shows what was published.

>>> from notificationintent import LobbyRaceNameRegisteredPayload, new_lobby_race_name_registered, publish_intent
>>> stream = MemoryStream()
>>> intent = new_lobby_race_name_registered(
...     LobbyRaceNameRegisteredPayload(race_name="Vireo"),
...     recipient_user_ids=["user-1"],
...     idempotency_key="race-name/vireo",
...     occurred_at=1_790_000_000_000,
... )
>>> publish_intent(stream, intent)
'1-0'
>>> expect_published(stream, type="lobby.race_name.registered", payload={"race_name": "Vireo"}) == intent
True
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .catalog import CATALOG
from .entry import parse_entry
from .errors import InvalidIntentError
from .intent import Intent
from .json_text import canonical_json, parse_json
from .types import Catalog

__all__ = ["AsyncMemoryStream", "MemoryStream", "Published", "expect_published"]


@dataclass(frozen=True)
class Published:
    """One intent that the stream has taken."""

    entry_id: str
    stream: str
    intent: Intent
    is_duplicate: bool
    """A repeat of an earlier intent, which has no effect."""


class MemoryStream:
    """Takes the place of redis.Redis in a producer's test."""

    def __init__(self, catalog: Catalog = CATALOG) -> None:
        self._catalog = catalog
        self.published: list[Published] = []
        """In their order, duplicates included."""
        self._failures: list[Exception] = []

    def fail_next(self, error: Exception) -> None:
        """Lets the next publication fail, as if Redis did not answer."""
        self._failures.append(error)

    def xadd(self, name: str, fields: Mapping[Any, Any], **options: Any) -> str:
        """Appends an entry as Redis would.

        Raises InvalidIntentError for what the service would refuse, also for a key that comes again with other content,
        and ValueError for options such as `maxlen`: producers do not trim the stream.
        """
        if options:
            raise ValueError(f"producers use a plain XADD, without {', '.join(options)}")
        if self._failures:
            raise self._failures.pop(0)
        intent = parse_entry(
            ((_text(key), _text(value)) for key, value in fields.items()), catalog=self._catalog
        )
        is_duplicate = False
        for earlier in self.published:
            if earlier.stream != name or _key_of(earlier.intent) != _key_of(intent):
                continue
            if earlier.intent.fingerprint() != intent.fingerprint():
                names = ", ".join(_differences(earlier.intent, intent))
                problem = f"came before, as {earlier.entry_id}, with other content ({names})"
                raise InvalidIntentError("idempotency_conflict", "idempotency_key", problem)
            is_duplicate = True
        entry_id = f"{len(self.published) + 1}-0"
        self.published.append(Published(entry_id, name, intent, is_duplicate))
        return entry_id


def _differences(one: Intent, other: Intent) -> list[str]:
    """Names the fields in which two intents with one idempotency key differ."""
    is_same = {
        "notification_type": one.notification_type == other.notification_type,
        "audience_kind": one.audience_kind == other.audience_kind,
        "recipient_user_ids_json": set(one.recipient_user_ids) == set(other.recipient_user_ids),
        "occurred_at_ms": one.occurred_at_ms == other.occurred_at_ms,
        "payload_json": one.payload_json == other.payload_json,
    }
    return [name for name, same in is_same.items() if not same]


class AsyncMemoryStream:
    """Takes the place of redis.asyncio.Redis; what it has taken is in `memory`."""

    def __init__(self, catalog: Catalog = CATALOG) -> None:
        self._catalog = catalog
        self.memory = MemoryStream()

    async def xadd(self, name: str, fields: Mapping[Any, Any], **options: Any) -> str:
        """As MemoryStream.xadd."""
        return self.memory.xadd(name, fields, **options)


def expect_published(
    stream: MemoryStream,
    *,
    type: str | None = None,
    idempotency_key: str | None = None,
    recipients: Iterable[str] | None = None,
    payload: Mapping[str, Any] | None = None,
) -> Intent:
    """The one intent that was published as expected, repeats of it left aside; what is None may be anything.

    Raises AssertionError, with what was published instead, unless there is exactly one. `recipients` are in any order,
    and `payload` is the whole payload.
    """
    expected = {
        "type": type,
        "key": idempotency_key,
        "recipients": None if recipients is None else sorted(recipients),
        "payload": None if payload is None else canonical_json(parse_json(json.dumps(payload))),
    }
    found: list[Intent] = []
    seen: list[str] = []
    for published in stream.published:
        if published.is_duplicate:
            continue
        intent = published.intent
        actual = {
            "type": intent.notification_type,
            "key": intent.idempotency_key,
            "recipients": sorted(intent.recipient_user_ids),
            "payload": intent.payload_json,
        }
        others = [name for name, value in expected.items() if value is not None and value != actual[name]]
        if not others:
            found.append(intent)
        difference = ", ".join(f"{name} differ" if name == "recipients" else f"another {name}" for name in others)
        difference = difference or "as expected"
        seen.append(f"\n  {published.entry_id} {actual}: {difference}")
    if len(found) != 1:
        wanted = {name: value for name, value in expected.items() if value is not None}
        raise AssertionError(
            f"expected one intent {wanted}, found {len(found)} among {len(seen)} published:{''.join(seen)}"
        )
    return found[0]


def _key_of(intent: Intent) -> tuple[str, str]:
    return intent.producer, intent.idempotency_key


def _text(value: Any) -> str | bytes:
    return value if isinstance(value, (str, bytes)) else str(value)
