"""New actors for an audit, from the header of a trace."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from ...actors.effects import Actor
from ...actors.errors import BudgetExceeded, InvalidRequest
from ...policies.catalog import CATALOG
from ...runtime.config import Config, PoliciesConfig, PolicyConfig
from ...runtime.host.building import ChargeOf, build
from ..header import Header, config_of
from ..reader import TraceReader


def actors_of(reader: TraceReader, policies: Mapping[str, str], charge: ChargeOf) -> dict[str, Actor]:
    """The actors that a trace's header describes, by name; ``policies`` by kind are those of its user's own."""
    header = reader.header
    if header.facts is None:
        raise InvalidRequest(
            f"trace {reader.path} was recorded without messages: an audit needs them; record the run again with this "
            "version, or replay the trace",
            file=str(reader.path),
        )
    config = attrs.evolve(_config(reader), policies=_policies(header, policies, str(reader.path)))
    heads = dict(header.decision.heads) if header.decision is not None else {}
    try:
        actors = build(config, header.facts, heads, charge)
    except KeyError as error:
        raise reader.invalid(f"facts have no model {error.args[0]!r}") from None
    except BudgetExceeded as error:
        raise reader.invalid(f"facts don't fit the device: {error.message}") from None
    return {actor.name: actor for actor in actors.all}


def _config(reader: TraceReader) -> Config:
    try:
        config, _ = config_of(reader.header)
    except ValueError as error:
        raise reader.invalid(str(error)) from error
    return config


def _policies(header: Header, given: Mapping[str, str], trace: str) -> PoliciesConfig:
    """The recorded policies. A user's own is never imported because a trace names it, but only because its user does.

    It is made with the recorded parameters.
    """
    unknown = sorted(set(given) - set(CATALOG))
    if unknown:
        raise InvalidRequest(f"no policies of kind {', '.join(unknown)}: the kinds are {', '.join(sorted(CATALOG))}")
    chosen = {}
    for kind, policy in header.policies.items():
        name, own = policy.name, ":" in policy.name
        if kind in given and not own:
            raise InvalidRequest(
                f"trace {trace} ran the {kind} policy {name}: an audit uses that one; leave --policy {kind}=... out",
                kind=kind,
                name=name,
            )
        if own and kind not in given:
            raise InvalidRequest(
                f"trace {trace} ran the {kind} policy {name} of its user's own, which an audit needs and does not "
                f"import by itself: name it, as in --policy {kind}={name}",
                kind=kind,
                name=name,
            )
        chosen[kind] = PolicyConfig(given.get(kind, name), dict(policy.parameters))
    return PoliciesConfig(**chosen)
