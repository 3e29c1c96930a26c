"""The account of a partition: reservations, charges, and defects that it refuses."""

from __future__ import annotations

import pytest
from coresident.actors.errors import BudgetExceeded
from coresident.actors.memory.ledger import Ledger, LedgerFault
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

ACCOUNTS = ("weights", "kv", "workspace")
amounts = st.integers(0, 60)


class LedgerMachine(RuleBasedStateMachine):
    """A ledger against a model of plain sums."""

    def __init__(self):
        super().__init__()
        self.ledger = Ledger(100)
        self.reserved = dict.fromkeys(ACCOUNTS, 0)
        self.charges = {}

    def used(self, account):
        return sum(amount for (name, _), amount in self.charges.items() if name == account)

    @rule(asked=st.dictionaries(st.sampled_from(ACCOUNTS), amounts, min_size=1))
    def reserve(self, asked):
        """All or nothing."""
        free = 100 - sum(self.reserved.values())
        if sum(asked.values()) > free:
            with pytest.raises(BudgetExceeded) as caught:
                self.ledger.reserve(asked)
            assert caught.value.details["available"] == free
            return
        self.ledger.reserve(asked)
        for account, amount in asked.items():
            self.reserved[account] += amount

    @rule(account=st.sampled_from(ACCOUNTS), amount=amounts)
    def release(self, account, amount):
        if amount > self.reserved[account] - self.used(account):
            with pytest.raises(LedgerFault, match=f"release of {amount} bytes of {account}"):
                self.ledger.release({account: amount})
            return
        self.ledger.release({account: amount})
        self.reserved[account] -= amount

    @rule(account=st.sampled_from(ACCOUNTS), owner=st.sampled_from("abc"), amount=amounts)
    def charge(self, account, owner, amount):
        if (account, owner) in self.charges:
            with pytest.raises(LedgerFault, match=f"{owner} already holds"):
                self.ledger.charge(account, owner, amount)
        elif amount > self.reserved[account] - self.used(account):
            with pytest.raises(BudgetExceeded):
                self.ledger.charge(account, owner, amount)
        else:
            self.ledger.charge(account, owner, amount)
            self.charges[account, owner] = amount

    @rule(account=st.sampled_from(ACCOUNTS), owner=st.sampled_from("abc"))
    def discharge(self, account, owner):
        held = self.charges.pop((account, owner), None)
        assert self.ledger.holds(account, owner) == (held is not None)
        if held is None:
            with pytest.raises(LedgerFault, match=f"{owner} holds nothing of {account}"):
                self.ledger.discharge(account, owner)
        else:
            assert self.ledger.discharge(account, owner) == held

    @rule(account=st.sampled_from(ACCOUNTS), owner=st.sampled_from("abc"), amount=amounts)
    def discharge_a_part(self, account, owner, amount):
        held = self.charges.get((account, owner))
        if held is None or amount > held:
            with pytest.raises(LedgerFault, match=f"{owner} holds"):
                self.ledger.discharge(account, owner, amount)
            return
        assert self.ledger.discharge(account, owner, amount) == amount
        self.charges[account, owner] = held - amount
        if held == amount:
            del self.charges[account, owner]

    @invariant()
    def sums_agree(self):
        view = self.ledger.statistics()
        assert view.reserved == self.ledger.reserved == sum(self.reserved.values()) <= view.partition == 100
        assert view.free == 100 - view.reserved
        for account in ACCOUNTS:
            assert self.ledger.budget(account) == self.reserved[account]
            assert self.ledger.available(account) == self.reserved[account] - self.used(account) >= 0

    @precondition(lambda self: self.charges)
    @rule()
    def peaks_are_at_least_what_is_used(self):
        for name, account in self.ledger.statistics().accounts.items():
            assert account.used == self.used(name) <= account.peak <= 100


LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestLedger = LedgerMachine.TestCase


def test_of_two_loads_in_one_instant_the_one_that_fits_is_admitted():
    """Bytes are reserved when a load is admitted, not when it allocates."""
    ledger = Ledger(62)
    ledger.reserve({"kv": 42})
    with pytest.raises(BudgetExceeded, match="asks for 32 bytes, 20 are available, 12 are missing"):
        ledger.reserve({"weights": 32})
    assert ledger.reserved == 42


def test_an_exact_fit_works_after_a_late_release():
    ledger = Ledger(100)
    ledger.reserve({"weights": 60})
    with pytest.raises(BudgetExceeded):
        ledger.reserve({"kv": 100})
    ledger.release({"weights": 60})
    ledger.reserve({"kv": 100})
    assert ledger.free == 0


def test_what_was_freed_is_not_used():
    """Filled and freed a hundred times, a small request still passes."""
    ledger = Ledger(100)
    ledger.reserve({"workspace": 100})
    for _ in range(100):
        ledger.charge("workspace", "big", 100)
        ledger.discharge("workspace", "big")
    ledger.charge("workspace", "small", 100)


@pytest.mark.parametrize("amounts", [{"kv": -1}, {"kv": 5, "weights": -5}])
def test_nothing_is_reserved_by_a_negative_amount(amounts):
    ledger = Ledger(100)
    with pytest.raises(LedgerFault, match="negative"):
        ledger.reserve(amounts)
    assert ledger.reserved == 0
