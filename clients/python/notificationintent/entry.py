"""The checks that the service makes of an entry of its stream."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from . import intent as intents
from .catalog import CATALOG
from .limits import (
    MAX_DELAY_MS,
    MAX_ENTRY_BYTES,
    MAX_ENTRY_FIELDS,
    MAX_KEY_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_TIMESTAMP_MS,
    MAX_USER_ID_BYTES,
    MIN_TIMESTAMP_MS,
)
from .errors import InvalidIntentError
from .json_text import JsonError, canonical_json, is_safe_integer, parse_json
from .types import Catalog, TypeSpec

REQUIRED_FIELDS = (
    "notification_type",
    "producer",
    "audience_kind",
    "idempotency_key",
    "occurred_at_ms",
    "payload_json",
)
OPTIONAL_FIELDS = ("recipient_user_ids_json", "deliver_at_ms", "expires_at_ms", "request_id", "trace_id")
_ENVELOPE = {name.encode(): name for name in REQUIRED_FIELDS + OPTIONAL_FIELDS}

# What ECMAScript, which the service speaks, takes for white space.
_NOT_BLANK = re.compile("[^\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
# Characters that end a line or reverse the direction of what follows.
_ACTS_ON_TEXT = {
    "line": re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e]"),
    "text": re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e]"),
}
_TIMESTAMP = re.compile("[0-9]{1,15}")
_TRACEPARENT = re.compile("00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def parse_entry(
    fields: Iterable[tuple[str | bytes, str | bytes]], *, catalog: Catalog = CATALOG
) -> intents.Intent:
    """Checks an entry as the service does.

    Text stands for its UTF-8. Unknown fields are ignored, and an empty optional field counts as absent. Raises
    InvalidIntentError for what the service would refuse.
    """
    pairs = [(_bytes(name), _bytes(value)) for name, value in fields]
    _check_size(pairs)
    envelope = _envelope(pairs)
    idempotency_key = _identifier(envelope, "idempotency_key")
    occurred_at_ms = _timestamp(envelope, "occurred_at_ms")
    deliver_at_ms = _delivery(envelope, occurred_at_ms)
    expires_at_ms = _expiry(envelope, occurred_at_ms, deliver_at_ms)
    request_id = _identifier(envelope, "request_id") if "request_id" in envelope else None
    trace_id = _identifier(envelope, "trace_id") if "trace_id" in envelope else None

    notification_type = envelope["notification_type"]
    spec = catalog.get(notification_type)
    if spec is None or spec.is_retired:
        problem = f"{_quote(notification_type)} {'is retired' if spec else 'is not in the catalog'}"
        raise InvalidIntentError("unknown_notification_type", "notification_type", problem)
    producer, audiences = spec.producer, spec.audiences
    if envelope["producer"] != producer:
        problem = f"of {notification_type} must be {producer}, not {_quote(envelope['producer'])}"
        raise InvalidIntentError("invalid_envelope", "producer", problem)
    audience_kind = envelope["audience_kind"]
    if audience_kind not in audiences:
        problem = f"of {notification_type} must be {' or '.join(audiences)}, not {_quote(audience_kind)}"
        raise InvalidIntentError("invalid_audience", "audience_kind", problem)
    return intents.Intent(
        notification_type=notification_type,
        producer=producer,
        audience_kind=audience_kind,
        recipient_user_ids=_recipients(envelope.get("recipient_user_ids_json"), audience_kind),
        idempotency_key=idempotency_key,
        occurred_at_ms=occurred_at_ms,
        deliver_at_ms=deliver_at_ms,
        expires_at_ms=expires_at_ms,
        payload_json=_payload(envelope["payload_json"], spec),
        request_id=request_id,
        trace_id=trace_id,
        traceparent=_traceparent(pairs),
    )


def is_traceparent(text: str) -> bool:
    """Whether it is W3C trace context of version 00."""
    return _TRACEPARENT.fullmatch(text) is not None


def _traceparent(pairs: list[tuple[bytes, bytes]]) -> str | None:
    # An entry is never refused for it: anything else counts as absent.
    found = [value.decode("latin-1") for name, value in pairs if name == b"traceparent"]
    return found[0] if len(found) == 1 and is_traceparent(found[0]) else None


def _bytes(value: str | bytes) -> bytes:
    # What is no text fails as "not UTF-8", as it would in the service.
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def _check_size(pairs: list[tuple[bytes, bytes]]) -> None:
    size = sum(len(name) + len(value) for name, value in pairs)
    if size > MAX_ENTRY_BYTES:
        problem = f"has {size} bytes; at most {MAX_ENTRY_BYTES} are accepted"
        raise InvalidIntentError("entry_too_large", None, problem)
    if len(pairs) > MAX_ENTRY_FIELDS:
        problem = f"has {len(pairs)} fields; at most {MAX_ENTRY_FIELDS} are accepted"
        raise InvalidIntentError("entry_too_large", None, problem)


def _envelope(pairs: list[tuple[bytes, bytes]]) -> dict[str, str]:
    envelope: dict[str, str] = {}
    for key, value in pairs:
        name = _ENVELOPE.get(key)
        if name is None:
            continue
        if name in envelope:
            raise InvalidIntentError("invalid_envelope", name, "is given more than once")
        try:
            envelope[name] = value.decode()
        except UnicodeDecodeError as error:
            raise InvalidIntentError("invalid_envelope", name, "is not UTF-8") from error
    for name in OPTIONAL_FIELDS:
        if envelope.get(name) == "":
            del envelope[name]
    for name in REQUIRED_FIELDS:
        if name not in envelope:
            raise InvalidIntentError("invalid_envelope", name, "is missing")
        if _is_blank(envelope[name]):
            raise InvalidIntentError("invalid_envelope", name, "is empty")
    return envelope


def _identifier(envelope: dict[str, str], name: str) -> str:
    value = envelope[name]
    if _CONTROL.search(value):
        raise InvalidIntentError("invalid_envelope", name, "has control characters")
    if len(value.encode()) > MAX_KEY_BYTES:
        raise InvalidIntentError("invalid_envelope", name, f"is longer than {MAX_KEY_BYTES} bytes")
    return value


def _timestamp(envelope: dict[str, str], name: str) -> int:
    text = envelope[name]
    value = int(text) if _TIMESTAMP.fullmatch(text) else 0
    if not MIN_TIMESTAMP_MS <= value <= MAX_TIMESTAMP_MS:
        problem = "must be whole milliseconds since 1970, of the years 2000 to 9999"
        raise InvalidIntentError("invalid_envelope", name, problem)
    return value


def _delivery(envelope: dict[str, str], occurred_at_ms: int) -> int | None:
    if "deliver_at_ms" not in envelope:
        return None
    deliver_at_ms = _timestamp(envelope, "deliver_at_ms")
    if deliver_at_ms > occurred_at_ms + MAX_DELAY_MS:
        raise InvalidIntentError("invalid_envelope", "deliver_at_ms", "must be at most 366 days after occurred_at_ms")
    return deliver_at_ms


def _expiry(envelope: dict[str, str], occurred_at_ms: int, deliver_at_ms: int | None) -> int | None:
    if "expires_at_ms" not in envelope:
        return None
    expires_at_ms = _timestamp(envelope, "expires_at_ms")
    # Seconds instead of milliseconds, for instance, would be an intent of which nothing is ever sent.
    if expires_at_ms <= occurred_at_ms:
        raise InvalidIntentError("invalid_envelope", "expires_at_ms", "must be after occurred_at_ms")
    if expires_at_ms <= (deliver_at_ms or 0):
        raise InvalidIntentError("invalid_envelope", "expires_at_ms", "must be after deliver_at_ms")
    return expires_at_ms


def _recipients(text: str | None, audience_kind: str) -> tuple[str, ...]:
    def refusal(problem: str) -> InvalidIntentError:
        return InvalidIntentError("invalid_recipients", "recipient_user_ids_json", problem)

    if audience_kind == "admin_email":
        if text is not None:
            raise refusal("is not allowed for audience_kind admin_email")
        return ()
    if text is None:
        raise refusal("is required for audience_kind user")
    try:
        ids = parse_json(text)
    except JsonError as error:
        raise refusal(str(error)) from error
    if not isinstance(ids, list) or not ids:
        raise refusal("must be a JSON array with at least one user id")
    seen: set[str] = set()
    for position, user_id in enumerate(ids):
        if not isinstance(user_id, str) or _is_blank(user_id):
            raise refusal(f"has no user id at position {position}")
        if user_id in seen:
            raise refusal(f"names {_quote(user_id)} more than once")
        if len(user_id.encode()) > MAX_USER_ID_BYTES:
            raise refusal(f"has a user id longer than {MAX_USER_ID_BYTES} bytes at position {position}")
        # A user id becomes a segment of the User Service's URL, where these two would name something else.
        if _CONTROL.search(user_id) or user_id in (".", ".."):
            raise refusal(f"has an unusable user id at position {position}")
        seen.add(user_id)
    return tuple(ids)


def _payload(text: str, spec: TypeSpec) -> str:
    size = len(text.encode())
    if size > MAX_PAYLOAD_BYTES:
        problem = f"has {size} bytes; at most {MAX_PAYLOAD_BYTES} are accepted"
        raise InvalidIntentError("invalid_payload", "payload_json", problem)
    try:
        payload = parse_json(text)
    except JsonError as error:
        raise InvalidIntentError("invalid_payload", "payload_json", str(error)) from error
    if not isinstance(payload, dict):
        raise InvalidIntentError("invalid_payload", "payload_json", "must be a JSON object")
    for name, form in spec.fields.items():
        if name not in payload and name not in spec.required:
            continue
        problem = _problem_of_field(payload.get(name), form)
        if problem is not None:
            raise InvalidIntentError("invalid_payload", f"payload_json.{name}", problem)
    return canonical_json(payload)


def _problem_of_field(value: Any, form: Mapping[str, Any]) -> str | None:
    if form["type"] == "boolean":
        return None if isinstance(value, bool) else "must be true or false"
    if form["type"] == "string":
        return _problem_of_text(value, form) if isinstance(value, str) else "must be a text"
    if not isinstance(value, float) or not is_safe_integer(value):
        return "must be a whole number up to 2^53 - 1"
    if value < form.get("minimum", value):
        return "is too small"
    return "is too large" if value > form.get("maximum", value) else None


def _problem_of_text(value: str, form: Mapping[str, Any]) -> str | None:
    if "enum" in form and value not in form["enum"]:
        return f"must be one of {', '.join(form['enum'])}"
    if "format" in form:
        if _is_blank(value):
            return "must not be blank"
        if _ACTS_ON_TEXT[form["format"]].search(value):
            return "must have no control or bidi characters"
        if not _are_isolates_closed(value):
            return "must close each bidi isolate"
    if len(value) < form.get("minLength", 0):
        return f"must have at least {form['minLength']} characters"
    if len(value) > form.get("maxLength", len(value)):
        return f"must have at most {form['maxLength']} characters"
    return None


def _are_isolates_closed(text: str) -> bool:
    """Whether what stands behind the text keeps its direction."""
    depth = 0
    for character in text:
        if "\u2066" <= character <= "\u2069":
            depth += -1 if character == "\u2069" else 1
        if depth < 0:
            return False
    return depth == 0


def _is_blank(text: str) -> bool:
    return _NOT_BLANK.search(text) is None


def _quote(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:99] + "…")
