"""Bit-identity on MLX under a BLAS whose rounding depends on shapes, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support import openblas
from support.mlx_models import needs_mlx
from support.parts import require_or_skip

needs_mlx()

TESTS = Path(__file__).parents[2]
IDENTITIES = (
    "runtime/test_backend_identity.py",
    "runtime/test_kv_session.py",
    "runtime/mlx/test_mlx_rows.py",
    "front/test_checkpoints.py",
    "front/test_preparation_of_prompts.py",
)

CHOSEN = "mlx and not seeded and not incremental and not alternations"


def test_R52_R54_R56_R66_every_identity_holds_and_every_control_differs(tmp_path):
    """Repeated, interrupted, saved, copied, prepared and restored runs of the tests named, their controls included."""
    if openblas.library() is None:
        require_or_skip("mlx", "no OpenBLAS to put in the place of MLX's BLAS: apt-get install libopenblas0-pthread")
    options = ["-k", CHOSEN, "-p", "support.openblas", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/t"]
    options += ["-c", str(TESTS.parent / "pyproject.toml"), "--rootdir", str(TESTS.parent)]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *(str(TESTS / name) for name in IDENTITIES)],
        capture_output=True,
        text=True,
        # Not the checkout: Python would take the package from there, and not the one that is installed.
        cwd=tmp_path,
        env={**os.environ, openblas.VARIABLE: "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(TESTS)},
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert "skipped" not in run.stdout
