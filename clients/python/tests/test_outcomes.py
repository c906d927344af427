"""Outcomes: the vectors that all languages share, and reading as a consumer of a group."""

from __future__ import annotations

import json
import unittest
from pathlib import Path
from typing import Any

from notificationintent import OUTCOMES_STREAM, OutcomeError, read_outcome, read_outcomes

VECTORS = json.loads((Path(__file__).parents[3] / "api/intent/outcome-vectors.json").read_text("utf-8"))
SETTLED = VECTORS["read"][0]


class Source:
    """Answers reads in this order, and then with nothing."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[Any, ...]] = []

    def execute_command(self, *args: Any) -> Any:
        self.calls.append(args)
        if args[0] != "XREADGROUP":
            return 1
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return [[OUTCOMES_STREAM, answer]] if answer else None


class Outcomes(unittest.TestCase):
    def test_every_kind_is_read(self) -> None:
        for fields in VECTORS["read"]:
            outcome = read_outcome({**fields, "added_later": "x"})
            for name, text in fields.items():
                self.assertEqual(str(getattr(outcome, name)), text)
            as_bytes = {name.encode(): text.encode() for name, text in fields.items()}
            self.assertEqual(read_outcome(as_bytes), outcome)

    def test_what_is_wrong_is_named(self) -> None:
        for refused in VECTORS["refused"]:
            with self.assertRaisesRegex(OutcomeError, refused["about"]):
                read_outcome(refused["fields"])

    def test_an_event_is_acknowledged_when_the_next_is_asked_for(self) -> None:
        source = Source([(b"1-0", SETTLED)], None, [(b"2-0", SETTLED)])
        outcomes = read_outcomes(source, "g", "c", should_stop=lambda: not source.answers)
        next(outcomes)
        self.assertNotIn(("XACK", OUTCOMES_STREAM, "g", b"1-0"), source.calls)
        self.assertEqual(len(list(outcomes)), 1)
        reads = [call[-1] for call in source.calls if call[0] == "XREADGROUP"]
        self.assertEqual(reads, ["0", "1-0", ">"])
        self.assertIn(("XACK", OUTCOMES_STREAM, "g", b"1-0"), source.calls)
        self.assertIn(("XACK", OUTCOMES_STREAM, "g", b"2-0"), source.calls)

    def test_a_deleted_stream_gets_its_group_again(self) -> None:
        source = Source(ValueError("NOGROUP No such key"), [(b"1-0", SETTLED)])
        outcomes = list(read_outcomes(source, "g", "c", should_stop=lambda: not source.answers))
        self.assertEqual(len(outcomes), 1)
        self.assertEqual(sum(call[0] == "XGROUP CREATE" for call in source.calls), 2)

    def test_what_cannot_be_read_is_raised_unless_somebody_takes_it(self) -> None:
        strange = [(b"1-0", {"kind": "delivered"})]
        with self.assertRaises(OutcomeError):
            list(read_outcomes(Source(strange), "g", "c"))
        source = Source(strange)
        taken: list[str] = []
        list(
            read_outcomes(
                source,
                "g",
                "c",
                should_stop=lambda: not source.answers,
                on_unreadable=lambda _, entry_id: taken.append(entry_id),
            )
        )
        self.assertEqual(taken, ["1-0"])


if __name__ == "__main__":
    unittest.main()
