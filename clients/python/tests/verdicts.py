"""Says of each entry on its input what this client makes of it: the hard test of the repository compares that with the service.

A line in is {"fields": [[name, value], ...]}, both base64; a line out {"fingerprint": ...}, with expires_at_ms and a traceparent if there are, or {"code": ..., "names": ...}.
"""

import json
import sys
from base64 import b64decode

from notificationintent import InvalidIntentError, parse_entry


def verdict_of(line: str) -> dict[str, str | int]:
    fields = json.loads(line)["fields"]
    try:
        intent = parse_entry((b64decode(name), b64decode(value)) for name, value in fields)
        traceparent = {"traceparent": intent.traceparent} if intent.traceparent else {}
        expiry = {} if intent.expires_at_ms is None else {"expires_at_ms": intent.expires_at_ms}
        delivery = {} if intent.deliver_at_ms is None else {"deliver_at_ms": intent.deliver_at_ms}
        return {"fingerprint": intent.fingerprint(), **delivery, **expiry, **traceparent}
    except InvalidIntentError as error:
        return {"code": error.code, "names": error.field or "the entry"}


if __name__ == "__main__":
    for question in sys.stdin:
        print(json.dumps(verdict_of(question)), flush=True)
