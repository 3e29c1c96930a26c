"""What the benchmarks share: configurations, prompts, percentiles, and where results go.

Every figure is a ratio within one run, or is printed beside the figure it is to be compared with: machines are shared
and noisy.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coresident.runtime.config import Config, structure

RESULTS = Path(__file__).parent / "results.json"
TEXT = (
    "the sea is wide and the harbour sleeps under a thin grey sky while small boats knock against the wall and a gull "
    "walks along the rope as if it owned the place and nobody comes to argue with it before the morning train arrives"
)


def arguments(description: str, **more: Any) -> argparse.Namespace:
    """Command line: ``--model`` (default SmolLM2), ``--save`` to write into ``results.json``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", default="smollm2", help="path, smollm2 or synthetic")
    parser.add_argument("--save", action="store_true", help="write the figures into benchmarks/results.json")
    for name, default in more.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    return parser.parse_args()


def config(model: str, ordering: str = "strict", context: int = 8192, **generation: Any) -> Config:
    """The configuration the benchmarks measure."""
    return structure(
        {
            "device": {"partition": "6 GiB", "workspace": "256 MiB"},
            "generation": {"model": model, "context": context, "retained": "1 GiB", **generation},
            "policies": {"ordering": ordering},
        },
        "benchmark",
    )


def prompt_tokens(count: int, vocabulary: int, seed: int = 0) -> list[int]:
    """Token ids of no particular meaning, deterministic, clear of the low ids that are special in many vocabularies."""
    low, high = (0, vocabulary) if vocabulary <= 256 else (1000, min(vocabulary, 40_000))
    return [low + (seed * 7919 + index * 104_729) % (high - low) for index in range(count)]


def text_of(words: int) -> str:
    """Plain words, repeated."""
    known = TEXT.split()
    return " ".join(known[index % len(known)] for index in range(words))


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Median, nearest-rank 95th percentile, and maximum."""
    ordered = sorted(values)
    rank = max(0, -(-len(ordered) * 95 // 100) - 1)
    return {"n": len(ordered), "p50": statistics.median(ordered), "p95": ordered[rank], "max": ordered[-1]}


def report(name: str, figures: Mapping[str, Any], save: bool) -> None:
    """Print figures as JSON; with ``save``, also keep them in ``results.json`` under ``name``."""
    rounded = json.loads(json.dumps(figures), parse_float=lambda text: float(f"{float(text):.4g}"))
    json.dump({name: rounded}, sys.stdout, indent=2)
    sys.stdout.write("\n")
    if save:
        known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        known[name] = {"cores": os.cpu_count(), **rounded}
        RESULTS.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
