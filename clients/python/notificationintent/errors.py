"""Why an intent is refused."""

from __future__ import annotations

from typing import Literal

FailureCode = Literal[
    "invalid_envelope",
    "unknown_notification_type",
    "invalid_audience",
    "invalid_recipients",
    "invalid_payload",
    "entry_too_large",
    "idempotency_conflict",
]
"""What the service records about an entry that it refuses; the last one only of a key that came before."""


class InvalidIntentError(ValueError):
    """The service would refuse an intent.

    `code` is what it would record. `field` is the field of the envelope that is wrong; for a field of the payload,
    `payload_json`, a dot and its name; None when the entry is too large. `problem` says what is wrong with it.
    """

    def __init__(self, code: FailureCode, field: str | None, problem: str) -> None:
        super().__init__(f"{code}: {field or 'the entry'} {problem}")
        self.code: FailureCode = code
        self.field = field
        self.problem = problem

    def __reduce__(self) -> tuple[type[InvalidIntentError], tuple[FailureCode, str | None, str]]:
        # Task queues carry errors from process to process, and would call the constructor with the message alone.
        return InvalidIntentError, (self.code, self.field, self.problem)
