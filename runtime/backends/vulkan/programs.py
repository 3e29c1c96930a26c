"""What is recorded once and runs again and again: the recordings of one program, each made when it is first run.

So a step that records for the first time gives way as soon as one that has all recordings.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import attrs

from .recording import Commands


@attrs.define(eq=False)
class Program:
    """Recordings in the order in which they run; ``more`` makes those that nobody has run yet."""

    more: Generator[Commands, None, None]
    broken: bool = attrs.field(default=False, init=False)
    _made: list[Commands] = attrs.field(factory=list, init=False)

    def __iter__(self) -> Iterator[Commands]:
        """Every recording. One that fails breaks the program: it can't be continued."""
        number = 0
        while number < len(self._made) or self._grows():
            yield self._made[number]
            number += 1

    def _grows(self) -> bool:
        try:
            commands = next(self.more, None)
        except BaseException:
            self.broken = True
            raise
        if commands is not None:
            self._made.append(commands)
        return commands is not None

    def free(self) -> None:
        """Free every recording, the one that is being made included; doing it again does nothing."""
        self.more.close()
        for commands in self._made:
            commands.free()
        self._made.clear()
