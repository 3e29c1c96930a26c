"""Random clients for one device, and the numbers of them that bounds are made of."""

from __future__ import annotations

from coresident.policies.catalog import ORDERING
from coresident.policies.views import WorkClass
from hypothesis import strategies as st
from one_device import MS, Client, Request

DECISION, FOREGROUND, UTILITY, PREPARATION = WorkClass
LOWER = (FOREGROUND, UTILITY)
# These two state that they promise nothing to decisions; whatever joins the catalogue does.
DECISIONS_FIRST = sorted(ORDERING.keys() - {"fifo", "edf"})
YIELDING = sorted(ORDERING.keys() - {"fifo"})
BY_CLASS = ["deadline", "shortest_remaining", "strict"]

times = st.integers(1, 20).map(lambda n: n * MS)
# None of these asks for more than the device has, and together they do.
charges = st.integers(0, 60)
no_charge = st.just(0)


def steps(most_steps, most_segments):
    return st.lists(st.lists(times, min_size=1, max_size=most_segments).map(tuple), min_size=1, max_size=most_steps)


def requests(work_class, charge):
    decision = work_class is DECISION
    return st.builds(
        Request,
        steps=steps(3, 1 if decision else 4).map(tuple),
        charge=charge,
        chunk=st.just(True) if decision else st.booleans(),
        deadline_in=st.none() | times,
    )


@st.composite
def clients(draw, classes=tuple(WorkClass), charge=no_charge, most=6):
    chosen = draw(st.lists(st.sampled_from(classes), min_size=1, max_size=most))
    return [
        Client(
            f"{work_class.label}{i}",
            work_class,
            tuple(draw(st.lists(requests(work_class, charge), min_size=1, max_size=4))),
            start=draw(st.integers(0, 40)) * MS,
            think=draw(st.sampled_from([0, 0, MS, 30 * MS])),
        )
        for i, work_class in enumerate(chosen)
    ]


def longest_segment(group):
    return max((t for c in group for r in c.requests for s in r.steps for t in s), default=0)


def longest_step(group):
    return max((sum(s) for c in group for r in c.requests for s in r.steps), default=0)


def longest_request(group):
    return max((sum(map(sum, r.steps)) for c in group for r in c.requests), default=0)


def of(group, *classes):
    return [c for c in group if c.work_class in classes]


def saturated(group):
    """The same clients after decision clients that never think, enough of them to outlast the rest many times."""
    return [Client(c.name, c.work_class, c.requests * 8, c.start, 0) if c.work_class is DECISION else c for c in group]
