"""coresident keeps several models resident on one device and decides, step by step, whose work runs next.

:func:`open_scheduler` is the door: inside its block a scheduler generates and decides. Everything here is for Trio;
:mod:`coresident.aio` and :mod:`coresident.blocking` have the same for asyncio and for no event loop at all.
"""

from __future__ import annotations

from importlib.metadata import version as _version

from .actors.errors import (
    ArtifactInvalid,
    BackendFault,
    BudgetExceeded,
    Closed,
    ContextExceeded,
    CoresidentError,
    DeviceLost,
    InvalidRequest,
    InvalidTransition,
    Overloaded,
    PolicyFault,
    TraceDiverged,
    TraceInvalid,
)
from .actors.supervisor import Readiness
from .checkpoints import Checkpoint
from .engine import BlockingEngine, BlockingEngineRegistry, Call, Completion, Engine, EngineRegistry
from .fixtures import AssembledRequest, Boundaries, load_request
from .generation import Generation
from .opening import open_scheduler
from .policies.views import WorkClass
from .preparation import Preparation, PreparationResult
from .results import DecisionResult, GenerationResult, Measurement, Piece, ToolCall
from .runtime.config import (
    Config,
    DecisionConfig,
    DeviceConfig,
    GenerationConfig,
    HostConfig,
    LimitsConfig,
    PoliciesConfig,
    PolicyConfig,
    StoreConfig,
    VerbalizerConfig,
    load_config,
)
from .runtime.host.assembly import Account
from .runtime.host.live import Statistics
from .runtime.host.observers import Delivery, Observer
from .runtime.models.channel_events import MalformedChannels
from .runtime.models.sampling import SamplingParams
from .runtime.models.text import Prompt
from .scheduler import Scheduler
from .scheduler_engine import SchedulerEngine, open_engine

__version__ = _version("coresident")

__all__ = [
    "Account",
    "ArtifactInvalid",
    "AssembledRequest",
    "BackendFault",
    "BlockingEngine",
    "BlockingEngineRegistry",
    "Boundaries",
    "BudgetExceeded",
    "Call",
    "Checkpoint",
    "Closed",
    "Completion",
    "Config",
    "ContextExceeded",
    "CoresidentError",
    "DecisionConfig",
    "DecisionResult",
    "Delivery",
    "DeviceConfig",
    "DeviceLost",
    "Engine",
    "EngineRegistry",
    "Generation",
    "GenerationConfig",
    "GenerationResult",
    "HostConfig",
    "InvalidRequest",
    "InvalidTransition",
    "LimitsConfig",
    "MalformedChannels",
    "Measurement",
    "Observer",
    "Overloaded",
    "Piece",
    "PoliciesConfig",
    "PolicyConfig",
    "PolicyFault",
    "Preparation",
    "PreparationResult",
    "Prompt",
    "Readiness",
    "SamplingParams",
    "Scheduler",
    "SchedulerEngine",
    "Statistics",
    "StoreConfig",
    "ToolCall",
    "TraceDiverged",
    "TraceInvalid",
    "VerbalizerConfig",
    "WorkClass",
    "load_config",
    "load_request",
    "open_engine",
    "open_scheduler",
]
