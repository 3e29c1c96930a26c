"""The decision workspace as accounting: the charge of unfused float32 attention, enforced before a step runs."""

from __future__ import annotations

import pytest
from coresident.actors.errors import BudgetExceeded
from coresident.actors.events import DecisionEnded
from coresident.actors.messages import Close, Start, SubmitDecision
from coresident.actors.work import StepKind, StepShape
from coresident.runtime.backends.modelled import CostModel, ModelledBackend
from coresident.runtime.config import structure
from coresident.runtime.host.assembly import assemble
from coresident.runtime.host.virtual import VirtualHost

MIB = 1024**2
HEADS = {f"head{index}": "rank" for index in range(6)}
ATTENTION_HEADS, LENGTH, LIVE_BUFFERS = 12, 1024, 3


class AccountingBackend(ModelledBackend):
    """Modelled, with the workspace that three live score matrices take: an accounting fixture, it computes nothing."""

    def charge(self, model: str, shape: StepShape) -> int:
        if shape.kind is not StepKind.DECISION:
            return super().charge(model, shape)
        return LIVE_BUFFERS * shape.rows * ATTENTION_HEADS * shape.tokens**2 * 4


def opened(workspace: str):
    config = structure(
        {
            "device": {"backend": "modelled", "partition": "8 GiB", "workspace": workspace},
            "generation": {"context": 2048},
            "decision": {"context": LENGTH, "rows_per_slice": 2},
        }
    )
    cost = CostModel(label="accounting fixture", workspace_per_token=1024)
    assembly = assemble(config, AccountingBackend(cost, tuple(HEADS)), HEADS)
    ends: list[DecisionEnded] = []
    host = VirtualHost(assembly.actors, assembly.backend, assembly.plans)
    host.listen_all(lambda event, at: ends.append(event) if isinstance(event, DecisionEnded) else None)
    host.send("supervisor", Start())
    host.run()
    return host, assembly, ends


def decide(host: VirtualHost, name: str, rows: int) -> None:
    tokens = tuple(range(LENGTH))
    host.send("decision", SubmitDecision(name, (), (tokens,) * rows, tuple(HEADS), "m"))
    host.run()


@pytest.mark.parametrize(("rows", "mib"), [(1, 144), (2, 288), (3, 432), (4, 576)])
def test_R14_the_charge_is_that_of_three_score_buffers(rows, mib):
    shape = StepShape(StepKind.DECISION, rows, LENGTH, LENGTH)
    assert AccountingBackend(heads=tuple(HEADS)).charge("generation", shape) == mib * MIB


def test_R14_two_full_rows_with_six_heads_pass_at_512_mib():
    host, assembly, ends = opened("512 MiB")
    decide(host, "d1", rows=2)
    assert [(end.outcome, len(end.scores)) for end in ends] == [("completed", 6)]
    assert assembly.device.statistics().ledger.accounts["workspace"].peak == 288 * MIB


def test_R14_they_are_refused_at_256_mib_and_the_runtime_goes_on():
    host, assembly, ends = opened("256 MiB")
    decide(host, "d1", rows=2)
    (end,) = ends
    assert (end.outcome, end.reason) == ("abstained", "over_budget")
    assert isinstance(end.error, BudgetExceeded)
    assert (end.error.details["asked"], end.error.details["available"]) == (288 * MIB, 256 * MIB)
    decide(host, "d2", rows=1)
    assert ends[-1].outcome == "completed"
    host.send("supervisor", Close())
    host.run()
    assert assembly.device.statistics().ledger.reserved == 0
