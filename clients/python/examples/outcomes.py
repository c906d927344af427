"""Prints what becomes of intents, one line an event, until it is interrupted.

python examples/outcomes.py redis://127.0.0.1:6379 [group]
"""

import sys

import redis

from notificationintent import OutcomeError, read_outcomes


def main(url: str, group: str = "example") -> None:
    for outcome in read_outcomes(redis.Redis.from_url(url), group, consumer="example"):
        print(outcome.notification_id, outcome.kind, outcome.idempotency_key or "", flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        pass
    except (OutcomeError, redis.RedisError) as error:
        sys.exit(str(error))
