"""The file to import: its text, line by line, plain or gzip'd, and errors that name its place in the file.

UTF-8 with or without a byte order mark, line ends of any kind. Nothing is held but the current line.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Self

import attrs

from ...actors.errors import TraceInvalid
from ..foreign import Foreign, recognise
from ..format import MAX_LINE
from .values import Value, Wrong

_SNIFFED = 64 * 1024
_GZIP = b"\x1f\x8b"


class Source:
    """An open file; ``line`` is the number of its latest line. Opened by ``with``. Raises ``TraceInvalid``."""

    def __init__(self, path: str | Path, name: str) -> None:
        self.path = Path(path)
        self.line = 0
        self._format = name
        try:
            self.size = self.path.stat().st_size
            self._raw = io.BufferedReader(self.path.open("rb", buffering=0), _SNIFFED)
        except OSError as error:
            raise TraceInvalid(f"{path}: {error.strerror or error}", file=str(path)) from error

    def __enter__(self) -> Self:
        try:
            packed = self._raw.peek(2)[:2] == _GZIP
            unpacked = gzip.GzipFile(fileobj=self._raw) if packed else self._raw
            self._head = unpacked.peek(_SNIFFED)
        except BaseException as error:
            self._raw.close()
            if isinstance(error, OSError | EOFError | zlib.error):
                raise self.unreadable(error) from error
            raise
        # Untranslated line ends: the csv module wants those inside quotes as they are.
        self._text = io.TextIOWrapper(unpacked, encoding="utf-8-sig", newline="")
        return self

    def __exit__(self, *_: object) -> None:
        self._text.close()
        self._raw.close()

    @property
    def position(self) -> int:
        """Bytes of the file that were read, of ``size``; a pipe does not tell."""
        return self._raw.tell() if self._raw.seekable() else 0

    def lines(self) -> Iterator[str]:
        """Lines with their ends."""
        while True:
            try:
                line = self._text.readline(MAX_LINE)
            except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
                raise self.unreadable(error) from error
            if not line:
                return
            self.line += 1
            if len(line) >= MAX_LINE:
                raise self.invalid(f"is longer than {MAX_LINE} characters")
            yield line

    def invalid(self, what: str, line: int | None = None) -> TraceInvalid:
        """An error about a line, the latest unless it is said."""
        line = self.line if line is None else line
        return TraceInvalid(f"{self.path}, row {line}: {what}", file=str(self.path), row=line)

    def unlike(self, what: str) -> TraceInvalid:
        """An error about a file that does not have the format, saying what it looks like."""
        seen = recognise(self._head)
        if seen is None:
            hint = "; it may be a trace of coresident, which needs no import"
        elif seen.importable == self._format:
            hint = ""
        else:
            hint = f"; it looks like {seen.what}{_advice(seen)}"
        return TraceInvalid(f"{self.path}, row {self.line}: {what}{hint}", file=str(self.path), row=self.line)

    def unreadable(self, error: Exception) -> TraceInvalid:
        """An error about what cannot be read."""
        what = "it was cut" if isinstance(error, EOFError) else str(error)
        return TraceInvalid(f"{self.path}, after row {self.line}: cannot be read: {what}", file=str(self.path))


def _advice(seen: Foreign) -> str:
    return f": {seen.advice.removeprefix('import it first: ')}" if seen.importable else ""


@attrs.frozen
class Row:
    """One record: its line and its fields. A field that is asked for and missing or wrong raises ``TraceInvalid``."""

    source: Source
    line: int
    fields: Mapping[str, Any]

    def get(self, name: str, read: Value[Any]) -> Any:
        """A field as ``read`` takes it."""
        if name not in self.fields:
            raise self.invalid(f"{name} is missing; there are {listed(self.fields)}")
        try:
            return read(self.fields[name])
        except Wrong as error:
            raise self.invalid(f"{name} is {error}") from None

    def invalid(self, what: str) -> TraceInvalid:
        """An error about this record."""
        return self.source.invalid(what, self.line)


def objects(source: Source, required: Iterable[str]) -> Iterator[Row]:
    """Records of a file with a JSON object a line; blank lines are passed over. The first must have what is required.

    Numbers with a fraction or an exponent are :class:`decimal.Decimal`.
    """
    first = True
    for line in source.lines():
        if not line.strip():
            continue
        try:
            fields = parse(line)
        except Wrong as error:
            raise (source.unlike if first else source.invalid)(f"{error}") from None
        if first:
            _require(source, required, fields)
            first = False
        yield Row(source, source.line, fields)
    if first:
        raise source.unlike("there are no records")


def table(source: Source, required: Iterable[str]) -> Iterator[Row]:
    """Records of a CSV file with a first line of names; all values are text. Other columns are passed over."""
    reader = csv.reader(source.lines(), strict=True)
    try:
        names = next(reader, None)
        if names is None:
            raise source.unlike("there are no columns")
        names = [name.strip() for name in names]
        _require(source, required, names)
        if len(set(names)) < len(names):
            raise source.invalid(f"a column is named twice among {', '.join(names)}")
        for values in reader:
            if not values:
                continue
            if len(values) != len(names):
                raise source.invalid(f"has {len(values)} values for {len(names)} columns; the file may be cut here")
            yield Row(source, source.line, dict(zip(names, values, strict=True)))
    except csv.Error as error:
        raise source.invalid(f"not CSV: {error}") from None


def parse(text: str) -> dict[str, Any]:
    """A JSON object. Raises :class:`Wrong`."""
    try:
        data = json.loads(text, parse_float=Decimal, parse_constant=_no_constant)
    except RecursionError:
        raise Wrong("not JSON: it nests too deeply") from None
    except ValueError as error:
        raise Wrong(f"not JSON: {error}; the file may be cut here") from None
    if not isinstance(data, dict):
        raise Wrong(f"not a JSON object but {type(data).__name__}")
    return data


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number here")


def _require(source: Source, required: Iterable[str], present: Iterable[str]) -> None:
    missing = [name for name in required if name not in set(present)]
    if missing:
        raise source.unlike(f"{', '.join(missing)} missing; there are {listed(present)}")


def listed(names: Iterable[str]) -> str:
    """The first of some names, for an error."""
    return ", ".join(name if len(name) <= 30 else f"{name[:27]}..." for name in islice(names, 12)) or "no fields"
