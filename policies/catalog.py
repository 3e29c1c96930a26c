"""The policies by name: those shipped, and a user's own as ``module:attribute``.

An entry is a factory: called with the policy's parameters, all by keyword and all with defaults, it returns
the pure callable ``decide(view, memory) -> (choice, memory)`` of its kind in ``views.py``. A new policy is
one file and one line.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, overload

from .abstention.confident import confident
from .abstention.deadline import deadline as abstain_by_deadline
from .errors import PolicyFault
from .ordering.aging import aging
from .ordering.deadline import deadline as order_by_deadline
from .ordering.edf import edf
from .ordering.fifo import fifo
from .ordering.shortest_remaining import shortest_remaining
from .ordering.strict import strict
from .ordering.weighted_fair import weighted_fair
from .preparation.after_quiet import after_quiet
from .preparation.gain import gain
from .preparation.idle import idle
from .preparation.never import never
from .quantum.arrivals import arrivals
from .quantum.fixed import fixed
from .quantum.timed import timed
from .retention.cost import cost
from .retention.lru import lru
from .views import Abstention, Ordering, Preparation, Quantum, Retention

Factory: TypeAlias = Callable[..., Any]

ORDERING: dict[str, Callable[..., Ordering]] = {
    "strict": strict,
    "aging": aging,
    "deadline": order_by_deadline,
    "weighted_fair": weighted_fair,
    "shortest_remaining": shortest_remaining,
    "edf": edf,
    "fifo": fifo,
}
QUANTUM: dict[str, Callable[..., Quantum]] = {"fixed": fixed, "timed": timed, "arrivals": arrivals}
RETENTION: dict[str, Callable[..., Retention]] = {"lru": lru, "cost": cost}
ABSTENTION: dict[str, Callable[..., Abstention]] = {"deadline": abstain_by_deadline, "confident": confident}
PREPARATION: dict[str, Callable[..., Preparation]] = {
    "idle": idle,
    "never": never,
    "after_quiet": after_quiet,
    "gain": gain,
}

CATALOG: dict[str, Mapping[str, Factory]] = {
    "ordering": ORDERING,
    "quantum": QUANTUM,
    "retention": RETENTION,
    "abstention": ABSTENTION,
    "preparation": PREPARATION,
}


@overload
def resolve(kind: Literal["ordering"], name: str, **parameters: Any) -> Ordering: ...
@overload
def resolve(kind: Literal["quantum"], name: str, **parameters: Any) -> Quantum: ...
@overload
def resolve(kind: Literal["retention"], name: str, **parameters: Any) -> Retention: ...
@overload
def resolve(kind: Literal["preparation"], name: str, **parameters: Any) -> Preparation: ...
@overload
def resolve(kind: Literal["abstention"], name: str, **parameters: Any) -> Abstention: ...
def resolve(kind: str, name: str, **parameters: Any) -> Any:
    """Return the policy ``name`` of ``kind``, a catalogue entry or ``module:attribute``, with ``parameters``.

    Raises ``PolicyFault`` for an unknown kind, name or parameter, for a value out of its range, for a module
    that cannot be imported, and for a factory that fails or gives no callable.
    """
    if kind not in CATALOG:
        raise PolicyFault(f"no policies of kind {kind!r}: the kinds are {_listed(CATALOG)}", kind=kind)
    factory = _imported(kind, name) if ":" in name else _shipped(kind, name)
    _check_parameters(kind, name, factory, parameters)
    try:
        policy = factory(**parameters)
    except PolicyFault:
        raise
    except (Exception, SystemExit) as error:
        raise PolicyFault(
            f"{kind} policy {name!r} failed when made with {parameters}: {type(error).__name__}: {error}",
            kind=kind,
            name=name,
        ) from error
    if not callable(policy):
        raise PolicyFault(
            f"{kind} policy {name!r} gave {policy!r}: name a factory that returns decide(view, memory)",
            kind=kind,
            name=name,
        )
    return policy


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(sorted(names)) or "none"


def _shipped(kind: str, name: str) -> Factory:
    entries = CATALOG[kind]
    if name not in entries:
        raise PolicyFault(
            f"no {kind} policy is called {name!r}: there are {_listed(entries)}; name your own as module:attribute",
            kind=kind,
            name=name,
        )
    return entries[name]


def _imported(kind: str, name: str) -> Factory:
    """Import a user's factory; ``attribute`` may be dotted."""
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        # Importing runs the user's code, which may fail in any way.
        raise PolicyFault(
            f"{kind} policy {name!r} cannot be loaded: {type(error).__name__}: {error}; "
            f"give an importable module:attribute, or one of {_listed(CATALOG[kind])}",
            kind=kind,
            name=name,
        ) from error
    if not callable(found):
        raise PolicyFault(
            f"{kind} policy {name!r} is {found!r}: name a factory that returns decide(view, memory)",
            kind=kind,
            name=name,
        )
    factory: Factory = found
    return factory


def _check_parameters(kind: str, name: str, factory: Factory, parameters: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(factory)
    except ValueError:
        return  # some callables written in C have no signature; calling them tells
    try:
        signature.bind(**parameters)
    except TypeError as error:
        accepted = _listed(signature.parameters)
        if ":" in name and not parameters:
            raise PolicyFault(
                f"{kind} policy {name!r} takes {accepted}: name a factory, a function without arguments that returns "
                "decide(view, memory), and not decide itself",
                kind=kind,
                name=name,
            ) from error
        raise PolicyFault(
            f"{kind} policy {name!r} was given {_listed(parameters)}: {error}; its parameters are {accepted}",
            kind=kind,
            name=name,
            parameters=tuple(sorted(parameters)),
        ) from error
