"""The words that ranks leave for each other in torch's store, with and without a proof of who wrote them."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from typing import Any

from gyre.core import _core

# A word has some hundred bytes; more than this is not parsed.
MOST_WORD_BYTES = 1 << 16
MOST_NESTING = 8
_NO_WORD = "no word"


class RefusedWordError(Exception):
    """Says why a word is not believed."""


class Words:
    """What the ranks of one group write into the store, by purpose and writer. This form proves nothing."""

    def __init__(self, store: Any, scope: str) -> None:
        """`scope`: different for any two groups that use the store."""
        self.store = store
        self.scope = scope

    def name(self, purpose: str, writer: int) -> str:
        return f"gyre.{self.scope}.{purpose}.{writer}"

    def write(self, purpose: str, writer: int, value: Mapping[str, Any]) -> None:
        self.store.set(self.name(purpose, writer), self.seal(purpose, writer, value))

    def is_there(self, purpose: str, writer: int) -> bool:
        return bool(self.store.check([self.name(purpose, writer)]))

    def read(self, purpose: str, writer: int) -> dict[str, Any]:
        """A word that is_there(). RefusedWordError also if somebody has just deleted it."""
        # get() would wait for it, for up to torch's 30 minutes; compare_set() answers at once.
        raw = self.store.compare_set(self.name(purpose, writer), _NO_WORD, _NO_WORD)
        if raw == _NO_WORD.encode():
            raise RefusedWordError("it has been deleted")
        return self.open(purpose, writer, raw)

    def seal(self, purpose: str, writer: int, value: Mapping[str, Any]) -> str:
        del purpose, writer
        return json.dumps(value)

    def open(self, purpose: str, writer: int, raw: bytes) -> dict[str, Any]:
        """What seal() was given. RefusedWordError if it is anything else."""
        del purpose, writer
        return _parsed(raw)


class SealedWords(Words):
    """Names and signatures that only ranks with `key` can compute: a stranger cannot write a word that is believed, nor
    know a name before a rank has used it. A signature covers the scope, the purpose and the writer."""

    def __init__(self, store: Any, scope: str, key: _core.Secret) -> None:
        super().__init__(store, scope)
        self._key = key

    def name(self, purpose: str, writer: int) -> str:
        return f"gyre.{self._signature('name', purpose, writer, '')[:32]}"

    def seal(self, purpose: str, writer: int, value: Mapping[str, Any]) -> str:
        text = json.dumps(value)
        return self._signature("word", purpose, writer, text) + text

    def open(self, purpose: str, writer: int, raw: bytes) -> dict[str, Any]:
        signature, text = raw[:64], raw[64:]
        if len(raw) > MOST_WORD_BYTES:
            raise RefusedWordError(f"it has {len(raw)} bytes")
        expected = self._signature("word", purpose, writer, text.decode(errors="replace"))
        if not hmac.compare_digest(signature, expected.encode()):
            raise RefusedWordError("its signature is not that of a rank with the job's secret")
        return _parsed(text)

    def _signature(self, kind: str, purpose: str, writer: int, text: str) -> str:
        return self._key.sign(json.dumps([kind, self.scope, purpose, writer, text])).hex()


def _parsed(raw: bytes) -> dict[str, Any]:
    if len(raw) > MOST_WORD_BYTES:
        raise RefusedWordError(f"it has {len(raw)} bytes")
    # Deeply nested lists would exhaust the parser's stack.
    if raw.count(b"[") + raw.count(b"{") > MOST_NESTING:
        raise RefusedWordError("it is not a word of Gyre's")
    try:
        value = json.loads(raw)
    except ValueError:  # Also of bytes that are not UTF-8.
        raise RefusedWordError("it is not a word of Gyre's") from None
    if not isinstance(value, dict):
        raise RefusedWordError("it is not a word of Gyre's")
    return value


def text_in(value: Mapping[str, Any], name: str) -> str:
    """A text of a word. RefusedWordError if it is not one."""
    text = value.get(name)
    if not isinstance(text, str):
        raise RefusedWordError(f"it has no {name}")
    return text
