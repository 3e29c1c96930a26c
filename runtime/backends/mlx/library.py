"""mlx-lm's model classes, without importing mlx-lm.

``import mlx_lm`` runs its command-line parts: it imports transformers (seconds) and lowers the process's limit of open
files. Its model classes need neither, so its folder is mounted as a package under a private name, whose
``__init__`` is empty, and only the asked module is imported from there. The table of model types that share a class is
read from mlx-lm's own source.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from ....actors.errors import InvalidRequest
from ...models.architecture import invalid

INSTALL = "pip install 'coresident[mlx]'"
_MOUNT = "_coresident_mlx_lm"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


def missing() -> tuple[str, ...]:
    """The packages that the backend needs and that are not installed here; imports nothing."""
    return tuple(name for name in ("mlx", "mlx_lm") if find_spec(name) is None)


def require() -> None:
    """Raise ``InvalidRequest``, saying what to install, unless MLX and mlx-lm are here."""
    lacking = missing()
    if lacking:
        names = " and ".join(name.replace("_", "-") for name in lacking)
        raise InvalidRequest(
            f"device.backend is 'mlx', which needs {names}, not installed here: {INSTALL}",
            backend="mlx",
            missing=lacking,
        )


def model_classes(settings: Mapping[str, Any], file: str) -> tuple[Any, Any]:
    """The model class and its arguments' class for a Hugging Face ``config.json``.

    Raises:
        ArtifactInvalid: mlx-lm has none for this ``model_type``, or the folder asks for code of its own.
    """
    if settings.get("model_file") is not None:
        raise invalid(file, "model_file", settings["model_file"], "code that comes with a model is never run")
    kind = settings.get("model_type")
    if not isinstance(kind, str) or _NAME.fullmatch(kind) is None:
        raise invalid(file, "model_type", kind, "it must name a model type that mlx-lm knows")
    try:
        module = _module(_aliases().get(kind, kind))
    except (Exception, SystemExit) as error:
        # Some modules want packages of their own, and one of them ends the process when it lacks one.
        why = f"mlx-lm's class for it cannot be imported here: {type(error).__name__}: {error}"
        raise invalid(file, "model_type", kind, why) from error
    if module is None or not (hasattr(module, "Model") and hasattr(module, "ModelArgs")):
        raise invalid(file, "model_type", kind, "the installed mlx-lm has no such model; a newer one may")
    return module.Model, module.ModelArgs


def _module(name: str) -> ModuleType | None:
    if _NAME.fullmatch(name) is None or not (_folder() / "models" / f"{name}.py").is_file():
        return None
    if _MOUNT not in sys.modules:
        package = ModuleType(_MOUNT)
        package.__path__ = [str(_folder())]
        sys.modules[_MOUNT] = package
    return importlib.import_module(f"{_MOUNT}.models.{name}")


def _folder() -> Path:
    require()
    spec = find_spec("mlx_lm")
    if spec is None or not spec.submodule_search_locations:
        raise InvalidRequest(f"mlx-lm is installed without its folder of models: {INSTALL}", backend="mlx")
    return Path(next(iter(spec.submodule_search_locations)))


@cache
def _aliases() -> dict[str, str]:
    """``MODEL_REMAPPING`` of ``mlx_lm/utils.py``: model types that another one's class runs."""
    tree = ast.parse((_folder() / "utils.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "MODEL_REMAPPING" for target in node.targets
        ):
            return dict(ast.literal_eval(node.value))
    return {}
