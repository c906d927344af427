"""Appending intents to the stream of the service."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol

from .intent import Intent

DEFAULT_STREAM = "notification:intents"
"""Where the service reads intents unless it is told otherwise."""


class StreamAppender(Protocol):
    """The part of a Redis client that publication needs; redis.Redis has it."""

    def xadd(self, name: str, fields: Any) -> Any: ...


class AsyncStreamAppender(Protocol):
    """The same of redis.asyncio.Redis."""

    def xadd(self, name: str, fields: Any) -> Awaitable[Any]: ...


def publish_intent(client: StreamAppender, intent: Intent, stream: str = DEFAULT_STREAM) -> str:
    """Appends an intent with one plain XADD on a client that the caller owns; no trimming, and no retry.

    A client that is set up to repeat commands may append it twice: the second entry is a duplicate without effect.
    Returns the id of the stream's entry, which is the notification id. What the client raises is the caller's, who may
    publish the same intent again, since its key makes that harmless. In a pipeline, use `xadd(stream, intent.fields())`.
    """
    return _entry_id(client.xadd(stream, intent.fields()))


async def publish_intent_async(
    client: AsyncStreamAppender, intent: Intent, stream: str = DEFAULT_STREAM
) -> str:
    """The same with a client of redis.asyncio."""
    return _entry_id(await client.xadd(stream, intent.fields()))


def _entry_id(reply: Any) -> str:
    if isinstance(reply, bytes):
        return reply.decode()
    if isinstance(reply, str):
        return reply
    raise TypeError(f"xadd returned {type(reply).__name__}, no id of an entry")
