"""Writing intents into the outbox of a producer (client/outbox.sql), in its own transaction."""

from __future__ import annotations

import json
from typing import Any, Protocol

from .intent import Intent

OUTBOX_STATEMENT = "SELECT notification_outbox.publish($1::jsonb)"
"""For clients such as asyncpg: `await connection.fetchval(OUTBOX_STATEMENT, outbox_entry(intent))`."""


class Cursor(Protocol):
    """The part of a cursor that writing needs; those of psycopg and psycopg2 have it."""

    def execute(self, query: Any, params: Any) -> Any: ...

    def fetchone(self) -> Any: ...


def outbox_entry(intent: Intent) -> str:
    """The intent's entry as JSON, the parameter of `notification_outbox.publish`."""
    return json.dumps(intent.fields(), ensure_ascii=False)


def publish_to_outbox(cursor: Cursor, intent: Intent) -> int:
    """Writes an intent into the outbox in the cursor's transaction.

    The relay, `galaxy-notify outbox relay`, brings it to the service once that is committed. Returns the number of the row.
    What the cursor raises is the caller's; the transaction is then to be rolled back.
    """
    cursor.execute("SELECT notification_outbox.publish(%s::jsonb)", (outbox_entry(intent),))
    return int(cursor.fetchone()[0])
