"""The programs in ``examples`` run as they stand."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

from support.parts import require_or_skip
from support.tree import ROOT

EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize("name", ["asyncio_chat", "blocking_chat"])
def test_a_chat_answers_each_turn_and_reuses_what_it_knows(name):
    said = "What is a buoy? " * 30 + "\nAnd a pier?\n\n"
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        input=said,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "CORESIDENT_MODEL": "synthetic"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("[urgent: ") == 2
    reused = [int(line.split()[0][1:]) for line in done.stdout.splitlines() if line.endswith("computed]")]
    assert reused[0] >= 0
    assert reused[1] > 400


@pytest.fixture
def web(monkeypatch) -> ModuleType:
    if importlib.util.find_spec("fastapi") is None:
        require_or_skip("fastapi", "the example of a web application needs it: pip install fastapi httpx")
    monkeypatch.setenv("CORESIDENT_MODEL", "synthetic")
    spec = importlib.util.spec_from_file_location("web_app", EXAMPLES / "web_app.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "web_app", module)
    spec.loader.exec_module(module)
    return module


def test_the_web_application_shares_one_scheduler(web):
    import httpx

    async def main() -> None:
        async with web.lifespan(web.app):
            transport = httpx.ASGITransport(web.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
                asked = [client.post("/answer", json={"prompt": "The sea", "max_tokens": 12}) for _ in range(5)]
                judged = client.post("/decide", json={"instruction": "Is it wet?", "rows": ["sea", "sand"]})
                *answers, judgement = await asyncio.gather(*asked, judged)
                assert {answer.status_code for answer in answers} == {200}
                assert len({answer.text for answer in answers}) == 1
                assert len(judgement.json()["probability"]) == 2
                assert (await client.get("/health")).json()["ready"] is True
                long = await client.post("/answer", json={"prompt": "The sea", "max_tokens": 10**8})
                assert (long.status_code, long.json()["error"]) == (413, "ContextExceeded")
                empty = await client.post("/answer", json={"prompt": ""})
                assert (empty.status_code, empty.json()["error"]) == (422, "InvalidRequest")

    asyncio.run(main())


def test_a_client_that_goes_away_stops_the_work(web):
    async def main() -> None:
        gone = asyncio.Event()
        asked = [{"type": "http.request", "body": json.dumps({"prompt": "The sea", "max_tokens": 4000}).encode()}]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "path": "/answer",
            "raw_path": b"/answer",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
        }

        async def receive() -> dict[str, Any]:
            if asked:
                return asked.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message.get("body"):
                gone.set()

        async with web.lifespan(web.app):
            await web.app(scope, receive, send)
            scheduler = web.app.state.scheduler
            while not (now := scheduler.statistics().generation).cancelled:
                await asyncio.sleep(0)
            assert (now.cancelled, now.completed) == (1, 0)

    asyncio.run(main())
