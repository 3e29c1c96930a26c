"""The one account of a partition.

Rule 1: reserved bytes never exceed the partition; checked at every change. Rule 2: bytes in use by an account never
exceed its reservation; every charge has an owner and is returned by that owner. Rule 3: bytes of a load in flight are
reserved when the load is admitted, not when it allocates. Workspace is an ordinary account whose reservation is the
budget and whose owners are steps.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from ..errors import BudgetExceeded, CoresidentError

WORKSPACE = "workspace"


class LedgerFault(CoresidentError):
    """A charge was taken twice, or returned by somebody who does not hold it: a defect of the caller."""


@attrs.define
class _Account:
    reserved: int = 0
    charges: dict[str, int] = attrs.field(factory=dict)

    @property
    def used(self) -> int:
        return sum(self.charges.values())


@attrs.frozen
class AccountStatistics:
    """Bytes of one account; ``peak`` is the most that was ever in use."""

    reserved: int
    used: int
    peak: int


@attrs.frozen
class LedgerStatistics:
    """Bytes of the whole partition, and by account."""

    partition: int
    reserved: int
    free: int
    accounts: Mapping[str, AccountStatistics]


class Ledger:
    """Reservations and charges of one device partition, in bytes."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self._accounts: dict[str, _Account] = {}
        self._peaks: dict[str, int] = {}

    @property
    def reserved(self) -> int:
        return sum(account.reserved for account in self._accounts.values())

    @property
    def free(self) -> int:
        """Bytes of the partition that nobody has reserved."""
        return self.partition - self.reserved

    def reserve(self, requests: Mapping[str, int]) -> None:
        """Reserve bytes for several accounts, all or none. Raises ``BudgetExceeded``."""
        asked = sum(requests.values())
        if any(amount < 0 for amount in requests.values()):
            raise LedgerFault(f"negative reservation in {dict(requests)}", requests=dict(requests))
        if asked > self.free:
            raise BudgetExceeded(
                f"reservation for {', '.join(requests)}",
                asked,
                self.free,
                "enlarge the partition or close something first",
            )
        for name, amount in requests.items():
            self._accounts.setdefault(name, _Account()).reserved += amount

    def release(self, requests: Mapping[str, int]) -> None:
        """Return reservations. Returning more than is reserved, or bytes still in use, is a defect."""
        for name, amount in requests.items():
            account = self._accounts.get(name, _Account())
            if amount < 0 or amount > account.reserved - account.used:
                raise LedgerFault(
                    f"release of {amount} bytes of {name}: "
                    f"{account.reserved} are reserved and {account.used} of them in use",
                    account=name,
                    asked=amount,
                    reserved=account.reserved,
                    used=account.used,
                )
            account.reserved -= amount
            if account.reserved == 0 and not account.charges:
                self._accounts.pop(name, None)

    def available(self, account: str) -> int:
        """Reserved bytes of an account that are not in use."""
        found = self._accounts.get(account)
        return found.reserved - found.used if found else 0

    def budget(self, account: str) -> int:
        """Reserved bytes of an account."""
        found = self._accounts.get(account)
        return found.reserved if found else 0

    def charge(self, account: str, owner: str, amount: int) -> None:
        """Take bytes of an account for ``owner``. Raises ``BudgetExceeded`` when it has too few."""
        found = self._accounts.get(account) or _Account()
        if owner in found.charges:
            raise LedgerFault(
                f"{owner} already holds {found.charges[owner]} bytes of {account}",
                owner=owner,
                account=account,
            )
        if amount < 0 or amount > found.reserved - found.used:
            raise BudgetExceeded(
                f"charge of {owner} to {account}",
                amount,
                found.reserved - found.used,
                "enlarge that budget or wait",
            )
        self._accounts[account] = found
        found.charges[owner] = amount
        self._peaks[account] = max(self._peaks.get(account, 0), found.used)

    def discharge(self, account: str, owner: str, amount: int | None = None) -> int:
        """Return ``amount`` bytes that ``owner`` holds of an account, or everything; the bytes."""
        found = self._accounts.get(account)
        if found is None or owner not in found.charges:
            raise LedgerFault(f"{owner} holds nothing of {account}", owner=owner, account=account)
        held = found.charges.pop(owner)
        if amount is None or amount == held:
            return held
        found.charges[owner] = held - amount
        if not 0 <= amount < held:
            found.charges[owner] = held
            raise LedgerFault(
                f"{owner} holds {held} bytes of {account}, and was to return {amount}", owner=owner, account=account
            )
        return amount

    def holds(self, account: str, owner: str) -> bool:
        """Whether ``owner`` holds a charge."""
        found = self._accounts.get(account)
        return found is not None and owner in found.charges

    def statistics(self) -> LedgerStatistics:
        """A frozen view of every account."""
        accounts = {
            name: AccountStatistics(account.reserved, account.used, self._peaks.get(name, 0))
            for name, account in sorted(self._accounts.items())
        }
        return LedgerStatistics(self.partition, self.reserved, self.free, accounts)
