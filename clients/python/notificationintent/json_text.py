"""JSON as the service reads and writes it: checked for all that would be lost on its way, and in canonical form.

The json module would not do: it gives up at a depth that depends on the caller's.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from json.decoder import scanstring
from typing import Any

from .limits import MAX_JSON_DEPTH

_MAX_SAFE_INTEGER = 2**53 - 1
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORDS = {"true": True, "false": False, "null": None}
_CLOSING = {"[": "]", "{": "}"}


class JsonError(ValueError):
    """Why a text is not acceptable JSON."""


def parse_json(text: str) -> Any:
    """Reads a text; every number becomes a float, as it does in the service.

    Raises JsonError for broken JSON, nesting beyond MAX_JSON_DEPTH, lone surrogates, NUL characters, and numbers that a
    double cannot hold.
    """
    try:
        value = _Reader(text).read()
    except JsonError:
        raise
    except (ValueError, IndexError) as error:
        raise JsonError("is not valid JSON") from error
    _refuse_flaws(value)
    return value


class _Reader:
    """Refuses a text that is nested deeper than MAX_JSON_DEPTH, overridden values included."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def read(self) -> Any:
        # Each open container with the key of the member that is read; a list has none.
        open_ones: list[tuple[Any, str | None]] = []
        while True:
            self._skip_space()
            opening = self.text[self.at]
            if opening in _CLOSING:
                if len(open_ones) == MAX_JSON_DEPTH:
                    raise JsonError(f"is nested deeper than {MAX_JSON_DEPTH} levels")
                self.at += 1
                value: Any = [] if opening == "[" else {}
                if not self._take(_CLOSING[opening]):
                    open_ones.append((value, self._key(value)))
                    continue
            else:
                value = self._scalar(opening)
            while open_ones:
                container, key = open_ones.pop()
                if key is None:
                    container.append(value)
                else:
                    container[key] = value
                if self._take(","):
                    open_ones.append((container, self._key(container)))
                    break
                if not self._take("]" if key is None else "}"):
                    raise ValueError("not closed")
                value = container
            else:
                self._skip_space()
                if self.at != len(self.text):
                    raise ValueError("something behind it")
                return value

    def _key(self, container: Any) -> str | None:
        """Reads a key with its colon, if the container has keys."""
        if isinstance(container, list):
            return None
        self._skip_space()
        if self.text[self.at] != '"':
            raise ValueError("no key")
        key, self.at = scanstring(self.text, self.at + 1, True)
        if not self._take(":"):
            raise ValueError("no colon")
        return key

    def _scalar(self, first: str) -> Any:
        if first == '"':
            text, self.at = scanstring(self.text, self.at + 1, True)
            return text
        for word, value in _WORDS.items():
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return value
        number = _NUMBER.match(self.text, self.at)
        if number is None:
            raise ValueError("no value")
        self.at = number.end()
        # An overflow is infinite, and refused as a flaw unless it is overridden.
        return float(number.group())

    def _take(self, char: str) -> bool:
        self._skip_space()
        if not self.text.startswith(char, self.at):
            return False
        self.at += 1
        return True

    def _skip_space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        if match is not None:
            self.at = match.end()


def is_safe_integer(number: float) -> bool:
    """Whether a number is whole, and no other whole number becomes the same double."""
    return math.isfinite(number) and number == int(number) and abs(number) <= _MAX_SAFE_INTEGER


def _refuse_flaws(value: Any) -> None:
    """Recursive: the reader bounds the depth."""
    if isinstance(value, str):
        _refuse_flaws_of_text(value)
    elif isinstance(value, float):
        if math.isinf(value) or (value.is_integer() and not is_safe_integer(value)):
            raise JsonError("has a number that JSON cannot carry exactly")
    elif isinstance(value, (list, dict)):
        if isinstance(value, dict):
            for key in value:
                _refuse_flaws_of_text(key)
        for inner in value.values() if isinstance(value, dict) else value:
            _refuse_flaws(inner)


def _refuse_flaws_of_text(text: str) -> None:
    if not is_well_formed(text):
        raise JsonError("has a lone surrogate")
    if "\0" in text:
        raise JsonError("has a NUL character")


def is_well_formed(text: str) -> bool:
    """Whether a text has no half of a pair of surrogates, so that UTF-8 can carry it."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def canonical_json(value: Any) -> str:
    """The canonical form (RFC 8785) of a value that parse_json returned."""
    if isinstance(value, dict):
        members = (f"{_text(key)}:{canonical_json(value[key])}" for key in sorted(value, key=utf16_order))
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical_json, value)) + "]"
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return _number(value)


def utf16_order(text: str) -> bytes:
    """Sorts texts by their UTF-16 units: other than by code points, those beyond U+FFFF come before U+E000."""
    return text.encode("utf-16-be")


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _number(number: float) -> str:
    """As ECMAScript writes it."""
    if is_safe_integer(number):
        return str(int(number))
    if abs(number) >= 1e-6:
        return format(Decimal(repr(number)), "f")
    return repr(number).replace("e-0", "e-")
