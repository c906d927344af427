"""An intent, and how constructors make one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta, timezone
from typing import Any

from . import entry
from .errors import FailureCode, InvalidIntentError
from .json_text import canonical_json, is_well_formed, utf16_order
from .types import Catalog

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Intent:
    """One that the service accepts: constructors and parse_entry make it."""

    notification_type: str
    producer: str
    audience_kind: str
    """`user` or `admin_email`."""
    recipient_user_ids: tuple[str, ...]
    """Empty for administrators."""
    idempotency_key: str
    occurred_at_ms: int
    payload_json: str
    """In canonical form (RFC 8785)."""
    request_id: str | None = None
    trace_id: str | None = None
    traceparent: str | None = None
    """W3C trace context of the producer."""
    deliver_at_ms: int | None = None
    """When it is delivered; now when it is None."""
    expires_at_ms: int | None = None
    """From when on it is not worth sending any more; never when it is None."""

    def fields(self) -> dict[str, str]:
        """The fields of its entry, as `xadd` takes them."""
        optional = {"request_id": self.request_id, "trace_id": self.trace_id, "traceparent": self.traceparent}
        recipients = json.dumps(self.recipient_user_ids, ensure_ascii=False, separators=(",", ":"))
        return {
            "notification_type": self.notification_type,
            "producer": self.producer,
            "audience_kind": self.audience_kind,
            **({"recipient_user_ids_json": recipients} if self.recipient_user_ids else {}),
            "idempotency_key": self.idempotency_key,
            "occurred_at_ms": str(self.occurred_at_ms),
            **({} if self.deliver_at_ms is None else {"deliver_at_ms": str(self.deliver_at_ms)}),
            **({} if self.expires_at_ms is None else {"expires_at_ms": str(self.expires_at_ms)}),
            "payload_json": self.payload_json,
            **{name: value for name, value in optional.items() if value},
        }

    def fingerprint(self) -> str:
        """The SHA-256, in hex, by which the service tells a duplicate from a conflict.

        The order of recipients and of keys makes no difference. deliver_at_ms, expires_at_ms,
        request_id, trace_id and traceparent make none either.
        """
        content = {
            "notification_type": self.notification_type,
            "producer": self.producer,
            "audience_kind": self.audience_kind,
            "recipient_user_ids": sorted(self.recipient_user_ids, key=utf16_order),
            "idempotency_key": self.idempotency_key,
            "occurred_at_ms": float(self.occurred_at_ms),
            "payload": self.payload_json,
        }
        return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def new_intent(
    catalog: Catalog,
    notification_type: str,
    audience_kind: str,
    payload: Any,
    *,
    recipient_user_ids: Iterable[str] | None,
    idempotency_key: str,
    occurred_at: datetime | int,
    expires_at: datetime | int | None,
    request_id: str | None,
    trace_id: str | None,
    traceparent: str | None,
    deliver_at: datetime | int | None = None,
) -> Intent:
    """What all constructors do: writes the entry as it would be appended, and runs the service's checks on it.

    `payload` is a dataclass of the type's fields and `further`. Raises InvalidIntentError.
    """
    if isinstance(recipient_user_ids, str):
        raise InvalidIntentError("invalid_recipients", "recipient_user_ids_json", "must be ids, not one text")
    recipients = None if recipient_user_ids is None else list(recipient_user_ids)
    envelope: dict[str, str | None] = {
        "notification_type": notification_type,
        "producer": catalog[notification_type].producer,
        "audience_kind": audience_kind,
        "recipient_user_ids_json": (
            None if recipients is None else _encoded("invalid_recipients", "recipient_user_ids_json", recipients)
        ),
        "idempotency_key": idempotency_key,
        "occurred_at_ms": str(_milliseconds("occurred_at_ms", occurred_at)),
        "deliver_at_ms": None if deliver_at is None else str(_milliseconds("deliver_at_ms", deliver_at)),
        "expires_at_ms": None if expires_at is None else str(_milliseconds("expires_at_ms", expires_at)),
        "payload_json": _payload_json(payload, catalog[notification_type].required),
        "request_id": request_id,
        "trace_id": trace_id,
        "traceparent": traceparent,
    }
    for name, value in envelope.items():
        if value is not None and (not isinstance(value, str) or not is_well_formed(value)):
            raise InvalidIntentError("invalid_envelope", name, "must be well-formed text")
    # The service would take it for absent, and the trace would end here without a word.
    if traceparent and not entry.is_traceparent(traceparent):
        raise InvalidIntentError("invalid_envelope", "traceparent", "must be a W3C traceparent of version 00")
    given = [(name, value) for name, value in envelope.items() if value is not None]
    return entry.parse_entry(given, catalog=catalog)


def _milliseconds(field: str, at: datetime | int) -> int:
    if isinstance(at, datetime) and at.tzinfo is not None:
        return (at - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(at, int) and not isinstance(at, bool):
        return at
    problem = "must be Unix milliseconds, or a datetime with its time zone"
    raise InvalidIntentError("invalid_envelope", field, problem)


def _payload_json(payload: Any, required: Iterable[str]) -> str:
    typed = {own.name: getattr(payload, own.name) for own in fields(payload) if own.name != "further"}
    # A required field that is None stays, and is refused.
    members = {name: value for name, value in typed.items() if value is not None or name in required}
    for name in payload.further:
        if name in members:
            problem = "is given twice: typed, and as a further field"
            raise InvalidIntentError("invalid_payload", f"payload_json.{name}", problem)
    whole = {**members, **payload.further}
    text = _encoded("invalid_payload", "payload_json", whole)
    if not _has_text_keys(whole):
        raise InvalidIntentError("invalid_payload", "payload_json", "has a key that is no text")
    return text


def _encoded(code: FailureCode, field: str, value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidIntentError(code, field, f"cannot be written as JSON: {error}") from error


def _has_text_keys(value: Any) -> bool:
    """json.dumps would turn other keys into text without a word. It has refused circles and great depth before."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _has_text_keys(inner) for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_has_text_keys, value))
    return True
