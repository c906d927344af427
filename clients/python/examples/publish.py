"""Publishes one intent and prints its notification id.

python examples/publish.py redis://127.0.0.1:6379 user-1 [idempotency key]
"""

import sys
from datetime import datetime, timezone

import redis

from notificationintent import (
    GameTurnReadyPayload,
    InvalidIntentError,
    new_game_turn_ready,
    publish_intent,
)


def main(url: str, user_id: str, key: str = "example/turn-54") -> None:
    # An intent that waits for a server which is away would hold the caller up: fail, and repeat it with the same key.
    client = redis.Redis.from_url(url, socket_timeout=2)
    intent = new_game_turn_ready(
        GameTurnReadyPayload(game_id="game-7", game_name="Andromeda", turn_number=54),
        recipient_user_ids=[user_id],
        idempotency_key=key,
        # Of the event, so that a repeat has the same.
        occurred_at=datetime(2026, 11, 22, 12, tzinfo=timezone.utc),
    )
    print(publish_intent(client, intent))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (InvalidIntentError, redis.RedisError) as error:
        sys.exit(str(error))
