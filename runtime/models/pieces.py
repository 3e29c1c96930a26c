"""What the entries of a vocabulary stand for, in bytes."""

from __future__ import annotations

import functools
import re

SPACE_MARK = "\u2581"
BYTE_PIECES = tuple(f"<0x{byte:02X}>" for byte in range(256))
BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@functools.cache
def byte_alphabet() -> dict[str, int]:
    """Character to byte in byte-level vocabularies: printable Latin-1 is itself, the rest follows from U+0100.

    Source: ``bytes_to_unicode`` of the GPT-2 encoder.
    """
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)) - set(itself))
    return {chr(byte): byte for byte in itself} | {chr(256 + n): byte for n, byte in enumerate(others)}


def byte_level(piece: str) -> bytes:
    """Bytes of a byte-level piece; one with other characters (padding of a vocabulary) is taken as it stands."""
    alphabet = byte_alphabet()
    try:
        return bytes([alphabet[character] for character in piece])
    except KeyError:
        return piece.encode("utf-8")


def marked_spaces(piece: str) -> bytes:
    """Bytes of a SentencePiece-like piece: ``<0x0A>`` is one byte, U+2581 a space."""
    byte = BYTE_PIECE.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace(SPACE_MARK, " ").encode("utf-8")
