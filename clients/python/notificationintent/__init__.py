"""Builds notification intents that galaxy-notify accepts, and appends them to its stream.

There is a constructor for each notification type. It makes the checks of the service, so an intent that it returns is never
malformed; for anything else it raises InvalidIntentError with the code that the service would record.

>>> from datetime import datetime, timezone
>>> intent = new_game_turn_ready(
...     GameTurnReadyPayload(game_id="game-7", game_name="Andromeda", turn_number=54),
...     recipient_user_ids=["user-1", "user-2"],
...     idempotency_key="game-7/turn-54",
...     occurred_at=datetime(2026, 11, 22, 12, tzinfo=timezone.utc),
... )
>>> intent.payload_json
'{"game_id":"game-7","game_name":"Andromeda","turn_number":54}'
>>> from notificationintent.testing import MemoryStream  # in a producer: redis.Redis()
>>> publish_intent(MemoryStream(), intent)
'1-0'

A publication that fails degrades notifications; it must not roll back the business change that it tells about. Repeat it with
the same idempotency key and the same time of the event: a repeat with the same content has no effect.
"""

from .constructors import *  # noqa: F403 - its __all__ is the generated list of constructors and payloads
from .constructors import __all__ as _constructors
from .entry import parse_entry
from .errors import FailureCode, InvalidIntentError
from .intent import Intent, new_intent
from .outbox import OUTBOX_STATEMENT, outbox_entry, publish_to_outbox
from .outcomes import OUTCOMES_STREAM, Outcome, OutcomeError, read_outcome, read_outcomes
from .publish import DEFAULT_STREAM, publish_intent, publish_intent_async
from .types import Catalog, TypeSpec

__all__ = [
    "DEFAULT_STREAM",
    "Catalog",
    "TypeSpec",
    "new_intent",
    "OUTBOX_STATEMENT",
    "OUTCOMES_STREAM",
    "FailureCode",
    "Intent",
    "InvalidIntentError",
    "Outcome",
    "OutcomeError",
    "outbox_entry",
    "parse_entry",
    "publish_intent",
    "publish_intent_async",
    "publish_to_outbox",
    "read_outcome",
    "read_outcomes",
    *_constructors,
]
