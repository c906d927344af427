"""Constructors, publication, and what is refused."""

import dataclasses
import doctest
import inspect
import json
import pickle
import unittest
from datetime import datetime, timezone
from typing import Any

import notificationintent
from notificationintent import (
    GameTurnReadyPayload,
    InvalidIntentError,
    new_game_turn_ready,
    parse_entry,
    publish_intent,
    publish_intent_async,
    publish_to_outbox,
    testing,
)
from notificationintent.catalog import CATALOG

AT_MS = 1_790_000_000_000
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite, pattern: Any) -> unittest.TestSuite:
    tests.addTests(doctest.DocTestSuite(notificationintent))
    tests.addTests(doctest.DocTestSuite(testing))
    return tests


def turn(changes: dict[str, Any] | None = None, **payload: Any) -> Any:
    return new_game_turn_ready(
        GameTurnReadyPayload(**{"game_id": "game-7", "game_name": "Andromeda", "turn_number": 54, **payload}),
        **{
            "recipient_user_ids": ["user-2", "user-1"],
            "idempotency_key": "game-7/turn-54",
            "occurred_at": AT_MS,
            **(changes or {}),
        },
    )


class Constructors(unittest.TestCase):
    def test_every_type_has_one(self) -> None:
        made = set()
        for name, constructor in inspect.getmembers(notificationintent, inspect.isfunction):
            if not name.startswith("new_") or name == "new_intent":
                continue
            parameters = inspect.signature(constructor).parameters
            payload_class = getattr(notificationintent, str(parameters["payload"].annotation))
            values = {
                own.name: 1 if own.type == "int" else f"a {own.name}"
                for own in dataclasses.fields(payload_class)
                if own.name != "further"
            }
            to_users = {"recipient_user_ids": ["user-1"]} if "recipient_user_ids" in parameters else {}
            intent = constructor(
                payload_class(**values), idempotency_key="key-1", occurred_at=AT_MS, **to_users
            )
            self.assertEqual(parse_entry(intent.fields().items()), intent)
            made.add((intent.notification_type, intent.audience_kind))
        self.assertEqual(
            made, {(kind, audience) for kind, spec in CATALOG.items() for audience in spec.audiences}
        )

    def test_an_intent_is_what_was_asked_for(self) -> None:
        at = datetime(2026, 9, 21, 14, 13, 20, tzinfo=timezone.utc)
        intent = turn(
            {"occurred_at": at, "expires_at": AT_MS + 3_600_000, "request_id": "request-1", "trace_id": "trace-1", "traceparent": TRACEPARENT},
            further={"map": {"sectors": 7}, "<&>": "\u2028"},
        )
        self.assertEqual(
            intent.fields(),
            {
                "notification_type": "game.turn.ready",
                "producer": "game_master",
                "audience_kind": "user",
                "recipient_user_ids_json": '["user-2","user-1"]',
                "idempotency_key": "game-7/turn-54",
                "occurred_at_ms": "1790000000000",
                "expires_at_ms": "1790003600000",
                "payload_json": '{"<&>":"\u2028","game_id":"game-7","game_name":"Andromeda","map":{"sectors":7},"turn_number":54}',
                "request_id": "request-1",
                "trace_id": "trace-1",
                "traceparent": TRACEPARENT,
            },
        )

    def test_an_intent_is_written_into_the_outbox_as_its_entry(self) -> None:
        class Cursor:
            def execute(self, query: str, params: tuple[str]) -> None:
                self.executed = (query, json.loads(params[0]))

            def fetchone(self) -> tuple[int]:
                return (7,)

        cursor = Cursor()
        intent = turn({"recipient_user_ids": ["user-é"]})
        self.assertEqual(publish_to_outbox(cursor, intent), 7)
        self.assertEqual(cursor.executed, ("SELECT notification_outbox.publish(%s::jsonb)", intent.fields()))

    def test_they_refuse_what_the_service_refuses(self) -> None:
        circle: list[Any] = []
        circle.append(circle)
        cases: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
            ("invalid_envelope", "idempotency_key", {"idempotency_key": ""}, {}),
            ("invalid_envelope", "idempotency_key", {"idempotency_key": 7}, {}),
            ("invalid_envelope", "idempotency_key", {"idempotency_key": "\ud800"}, {}),
            ("invalid_envelope", "occurred_at_ms", {"occurred_at": 0}, {}),
            ("invalid_envelope", "occurred_at_ms", {"occurred_at": 1.5}, {}),
            ("invalid_envelope", "occurred_at_ms", {"occurred_at": datetime(2026, 9, 21)}, {}),
            ("invalid_envelope", "request_id", {"request_id": "a\nb"}, {}),
            ("invalid_recipients", "recipient_user_ids_json", {"recipient_user_ids": []}, {}),
            ("invalid_recipients", "recipient_user_ids_json", {"recipient_user_ids": "user-1"}, {}),
            ("invalid_recipients", "recipient_user_ids_json", {"recipient_user_ids": ["a", "a"]}, {}),
            ("invalid_recipients", "recipient_user_ids_json", {"recipient_user_ids": ["\udc00"]}, {}),
            ("invalid_recipients", "recipient_user_ids_json", {"recipient_user_ids": [object()]}, {}),
            ("invalid_payload", "payload_json.game_id", {}, {"game_id": ""}),
            ("invalid_payload", "payload_json.game_id", {}, {"further": {"game_id": "b"}}),
            ("invalid_payload", "payload_json.turn_number", {}, {"turn_number": -1}),
            ("invalid_payload", "payload_json.turn_number", {}, {"turn_number": True}),
            ("invalid_payload", "payload_json.turn_number", {}, {"turn_number": "54"}),
            ("invalid_payload", "payload_json", {}, {"turn_number": 2**53}),
            ("invalid_payload", "payload_json", {}, {"game_name": "\ud800"}),
            ("invalid_payload", "payload_json", {}, {"further": {"a": float("nan")}}),
            ("invalid_payload", "payload_json", {}, {"further": {"a": {1: 2}}}),
            ("invalid_payload", "payload_json", {}, {"further": {"a": circle}}),
        ]
        for code, field, changes, payload in cases:
            with self.subTest(changes=str(changes), payload=str(payload)):
                with self.assertRaises(InvalidIntentError) as caught:
                    turn(changes, **payload)
                self.assertEqual((caught.exception.code, caught.exception.field), (code, field))
                self.assertTrue(str(caught.exception).startswith(f"{code}: {field} "))
                carried = pickle.loads(pickle.dumps(caught.exception))
                self.assertEqual((carried.code, carried.field, str(carried)), (code, field, str(caught.exception)))


class Publication(unittest.IsolatedAsyncioTestCase):
    def test_a_client_that_answers_in_bytes(self) -> None:
        class Bytes(testing.MemoryStream):
            def xadd(self, name: str, fields: Any, **options: Any) -> Any:
                return super().xadd(name, fields, **options).encode()

        stream = Bytes()
        self.assertEqual(publish_intent(stream, turn(), "other"), "1-0")
        self.assertEqual(stream.published[0].stream, "other")

    def test_a_pipeline_is_no_client(self) -> None:
        class Pipeline:
            def xadd(self, name: str, fields: Any) -> Any:
                return self

        with self.assertRaisesRegex(TypeError, "Pipeline"):
            publish_intent(Pipeline(), turn())

    async def test_an_asynchronous_client(self) -> None:
        stream = testing.AsyncMemoryStream()
        self.assertEqual(await publish_intent_async(stream, turn()), "1-0")
        testing.expect_published(stream.memory, type="game.turn.ready")


class MemoryStream(unittest.TestCase):
    def setUp(self) -> None:
        self.stream = testing.MemoryStream()

    def test_what_was_published_is_found_and_repeats_are_left_aside(self) -> None:
        for key in ["one", "two", "one"]:
            publish_intent(self.stream, turn({"idempotency_key": key}))
        found = testing.expect_published(
            self.stream,
            idempotency_key="one",
            recipients=["user-1", "user-2"],
            payload={"turn_number": 54.0, "game_name": "Andromeda", "game_id": "game-7"},
        )
        self.assertEqual(found.idempotency_key, "one")
        self.assertEqual([one.is_duplicate for one in self.stream.published], [False, False, True])

    def test_what_was_not_published_fails_the_test(self) -> None:
        for key in ["one", "two"]:
            publish_intent(self.stream, turn({"idempotency_key": key}))
        expectations: list[dict[str, Any]] = [
            {"type": "game.finished"},
            {"idempotency_key": "three"},
            {"recipients": ["user-1"]},
            {"payload": {"game_id": "game-7"}},
            {},  # two are as expected, and it should be one
        ]
        for expected in expectations:
            with self.subTest(expected=expected):
                with self.assertRaisesRegex(AssertionError, r"(?s)among 2 published:.*1-0 .*'one'.*2-0 "):
                    testing.expect_published(self.stream, **expected)

    def test_it_refuses_what_the_service_refuses(self) -> None:
        publish_intent(self.stream, turn())
        with self.assertRaises(InvalidIntentError) as caught:
            publish_intent(self.stream, turn(turn_number=55))
        self.assertEqual(caught.exception.code, "idempotency_conflict")
        self.assertIn("with other content (payload_json)", str(caught.exception))
        with self.assertRaises(InvalidIntentError) as caught:
            self.stream.xadd("s", {b"notification_type": "game.turn.ready", "occurred_at_ms": 7})
        self.assertEqual((caught.exception.code, caught.exception.field), ("invalid_envelope", "producer"))
        with self.assertRaisesRegex(ValueError, "maxlen"):
            self.stream.xadd("s", turn().fields(), maxlen=10)
        self.assertEqual(len(self.stream.published), 1)

    def test_a_failure_of_redis_is_the_callers(self) -> None:
        self.stream.fail_next(ConnectionError("refused"))
        with self.assertRaises(ConnectionError):
            publish_intent(self.stream, turn())
        publish_intent(self.stream, turn())
