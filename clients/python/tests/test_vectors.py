"""What the service decides; every client is tested against this file."""

import json
import unittest
from base64 import b64decode
from pathlib import Path
from typing import Any

from notificationintent import InvalidIntentError, parse_entry

VECTORS = json.loads((Path(__file__).parents[3] / "api/intent/vectors.json").read_text("utf-8"))


def value_of(value: Any) -> bytes:
    """Joins the pieces of a value: text, text that comes again, bytes."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list):
        return b"".join(map(value_of, value))
    return b64decode(value["base64"]) if "base64" in value else value["repeat"].encode() * value["times"]


def entry_of(vector: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    fields = [(name.encode(), value_of(value)) for name, value in vector["fields"]]
    return fields + [(f"further-{at}".encode(), b"x") for at in range(vector.get("further_fields", 0))]


class Vectors(unittest.TestCase):
    def test_there_are_enough(self) -> None:
        self.assertGreater(len(VECTORS["entries"]), 400)

    def test_entries_are_decided_as_by_the_service(self) -> None:
        for vector in VECTORS["entries"]:
            with self.subTest(vector["name"]):
                if "refused" in vector:
                    with self.assertRaises(InvalidIntentError) as caught:
                        parse_entry(entry_of(vector))
                    names = caught.exception.field or "the entry"
                    self.assertEqual({"code": caught.exception.code, "names": names}, vector["refused"])
                    continue
                accepted = vector["accepted"]
                intent = parse_entry(entry_of(vector))
                self.assertEqual(intent.fingerprint(), accepted["fingerprint"])
                self.assertEqual(intent.payload_json, accepted.get("payload_json", intent.payload_json))
                recipients = list(intent.recipient_user_ids)
                self.assertEqual(recipients, accepted.get("recipient_user_ids", recipients))
                self.assertEqual(intent.expires_at_ms, accepted.get("expires_at_ms"))
                self.assertEqual(intent.traceparent, accepted.get("traceparent"))
                self.assertEqual(parse_entry(intent.fields().items()), intent)
