"""Who waits for what, when a run can't go on."""

from __future__ import annotations

from ..actors.memory.ledger import WORKSPACE
from ..runtime.host.assembly import Assembly
from .player import Player

_NAMED = 8


def waits(assembly: Assembly, player: Player) -> tuple[str, ...]:
    """Lines such as ``request r3: generation has it, queued, waiting for a KV slot (0 of 2 are free)``.

    Open requests first, then those that were never submitted; of very many only the first are named.
    """
    told = {request: f"generation has it, {what}" for request, what in assembly.generation.waits().items()}
    if assembly.decision is not None:
        told |= {request: f"decision has it, {what}" for request, what in assembly.decision.waits().items()}
    lost = "no actor has it, and its end was not told"
    lines = [f"request {request}: {told.get(request, lost)}" for request in player.open]
    lines += [
        f"request {request} was not submitted: it follows the end of {leader}, which has not come"
        for request, leader in player.missing()
    ]
    device = assembly.device.statistics()
    free = device.ledger.accounts[WORKSPACE].reserved - device.ledger.accounts[WORKSPACE].used
    lines = [*lines[:_NAMED], *([f"and {len(lines) - _NAMED} more"] if len(lines) > _NAMED else [])]
    steps = f"{device.waiting} steps waiting and {free} bytes of workspace free"
    return (*lines, f"the device is {device.state} with {steps}")
