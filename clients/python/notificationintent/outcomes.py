"""Reading what became of intents: the events of the stream of outcomes.

>>> outcome = read_outcome({
...     "event_id": "1-0/end", "kind": "settled", "notification_id": "1-0", "occurred_at_ms": "1790000000000",
...     "producer": "game_master", "idempotency_key": "game-7/turn-54",
...     "published": "2", "skipped": "0", "dead_lettered": "0",
... })
>>> outcome.kind, outcome.is_terminal, outcome.published
('settled', True, 2)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

OUTCOMES_STREAM = "notification:outcomes"
"""The stream, unless the service is told otherwise."""

TERMINAL_KINDS = frozenset({"settled", "cancelled", "expired", "duplicate", "conflict", "malformed"})
"""How an intent ends: exactly one of these for each."""

OUTCOME_KINDS = TERMINAL_KINDS | {"accepted", "route_published", "route_skipped", "route_dead_lettered", "recovered"}

_ENDED = ("published", "skipped", "dead_lettered")
_OF_ROUTE = ("route", "channel", "generation")
_REQUIRED: dict[str, tuple[str, ...]] = {
    "settled": _ENDED,
    "cancelled": _ENDED,
    "expired": _ENDED,
    "duplicate": ("duplicate_of",),
    "conflict": ("conflicts_with",),
    "malformed": ("failure_code",),
    "accepted": ("routes", "skipped"),
    "route_published": _OF_ROUTE,
    "route_skipped": (*_OF_ROUTE, "reason"),
    "route_dead_lettered": (*_OF_ROUTE, "reason"),
    "recovered": _OF_ROUTE,
}
_NUMBERS = frozenset({"occurred_at_ms", "generation", "routes", *_ENDED})
_OPTIONAL = ("notification_type", "producer", "idempotency_key", "request_id", "trace_id", "field")


class OutcomeError(ValueError):
    """An entry is no event of this contract, or of a later one."""


@dataclass(frozen=True)
class Outcome:
    """One event. What its kind does not have is None; the contract says which kind has what."""

    event_id: str
    """The same whenever the event is repeated, and of no other event."""
    kind: str
    notification_id: str
    occurred_at_ms: int
    notification_type: str | None = None
    producer: str | None = None
    idempotency_key: str | None = None
    request_id: str | None = None
    trace_id: str | None = None
    published: int | None = None
    skipped: int | None = None
    dead_lettered: int | None = None
    routes: int | None = None
    duplicate_of: str | None = None
    conflicts_with: str | None = None
    failure_code: str | None = None
    field: str | None = None
    route: str | None = None
    channel: str | None = None
    generation: int | None = None
    reason: str | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether it is the end of its intent."""
        return self.kind in TERMINAL_KINDS


def read_outcome(fields: Mapping[Any, Any]) -> Outcome:
    """Reads the fields of an entry, as text or bytes. Raises OutcomeError that names what is missing or wrong."""
    texts = {_text(name): _text(value) for name, value in fields.items()}
    kind = texts.get("kind", "")
    if kind not in OUTCOME_KINDS:
        raise OutcomeError(f"kind {kind!r} is unknown")
    required = ("event_id", "notification_id", "occurred_at_ms", *_REQUIRED[kind])
    values: dict[str, Any] = {"kind": kind}
    for name in (*required, *_OPTIONAL):
        text = texts.get(name)
        if text is None:
            if name in required:
                raise OutcomeError(f"{name} is missing")
        elif name not in _NUMBERS:
            values[name] = text
        elif text.isascii() and text.isdigit() and len(text) <= 15:
            values[name] = int(text)
        else:
            raise OutcomeError(f"{name} must be a whole number")
    return Outcome(**values)


class OutcomeSource(Protocol):
    """The part of a Redis client that reading needs; redis.Redis has it."""

    def execute_command(self, *args: Any) -> Any: ...


def read_outcomes(
    client: OutcomeSource,
    group: str,
    consumer: str,
    *,
    stream: str = OUTCOMES_STREAM,
    count: int = 100,
    block_ms: int = 2_000,
    should_stop: Callable[[], bool] = lambda: False,
    on_unreadable: Callable[[OutcomeError, str], None] | None = None,
) -> Iterator[Outcome]:
    """Reads events as a consumer of a group, which is made when it is not there and then begins with the oldest event.

    An event is acknowledged when the next one is asked for: what a process did not come to before it ended, it gets again
    under the same consumer name. Events come at least once and in the order of each intent; who must not act twice
    remembers `event_id`. `should_stop` is asked after each read. An entry that is no event of the contract is raised as
    OutcomeError and stays unacknowledged, unless `on_unreadable` takes it. The client's socket_timeout must be longer than
    `block_ms`.
    """
    _make_group(client, stream, group)
    begin = "0"
    while not should_stop():
        entries = _read_group(client, stream, group, consumer, count, block_ms, begin)
        if not entries:
            begin = ">"
        elif begin != ">":
            begin = _text(entries[-1][0])
        for entry_id, fields in entries:
            # Without fields it was trimmed since it was read.
            if fields:
                try:
                    outcome = read_outcome(fields if isinstance(fields, Mapping) else _pairs(fields))
                except OutcomeError as error:
                    if on_unreadable is None:
                        raise
                    on_unreadable(error, _text(entry_id))
                else:
                    yield outcome
            client.execute_command("XACK", stream, group, entry_id)


def _read_group(
    client: OutcomeSource, stream: str, group: str, consumer: str, count: int, block_ms: int, begin: str
) -> list[Any]:
    try:
        reply = client.execute_command(
            "XREADGROUP", "GROUP", group, consumer, "COUNT", count, "BLOCK", block_ms, "STREAMS", stream, begin
        )
    except Exception as error:
        # The stream was deleted, and its groups with it.
        if "NOGROUP" not in str(error) and "consumer group" not in str(error):
            raise
        _make_group(client, stream, group)
        return []
    if not reply:
        return []
    entries = next(iter(reply.values()))[0] if isinstance(reply, Mapping) else reply[0][1]
    return list(entries)


def _make_group(client: OutcomeSource, stream: str, group: str) -> None:
    try:
        client.execute_command("XGROUP CREATE", stream, group, "0", "MKSTREAM")
    except Exception as error:
        if "BUSYGROUP" not in str(error) and "already exists" not in str(error):
            raise


def _pairs(fields: Any) -> dict[str, Any]:
    names = list(fields)
    return {_text(names[at]): names[at + 1] for at in range(0, len(names) - 1, 2)}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
