"""A web application whose requests share one scheduler: answers stream, decisions go first, a closed page stops work.

pip install fastapi uvicorn
uvicorn --app-dir examples web_app:app
curl -N localhost:8000/answer -H 'content-type: application/json' -d '{"prompt": "Tell me about the sea."}'
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel

from coresident import ContextExceeded, CoresidentError, InvalidRequest, Overloaded, aio

STATUS: dict[type[CoresidentError], int] = {InvalidRequest: 422, ContextExceeded: 413, Overloaded: 503}


class Question(BaseModel):
    prompt: str
    max_tokens: int = 64


class Judgement(BaseModel):
    instruction: str
    rows: list[str]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One scheduler for as long as the application runs."""
    async with aio.open_scheduler() as app.state.scheduler:
        yield


app = FastAPI(lifespan=lifespan)


def scheduler_of(request: Request) -> aio.Scheduler:
    scheduler: aio.Scheduler = request.app.state.scheduler
    return scheduler


@app.exception_handler(CoresidentError)
async def refused(request: Request, error: CoresidentError) -> JSONResponse:
    """Errors are typed, so each has its own status; their text says what was asked and what to do."""
    detail = {"error": type(error).__name__, "detail": str(error)}
    return JSONResponse(detail, STATUS.get(type(error), 500))


@app.post("/answer")
async def answer(question: Question, request: Request) -> StreamingResponse:
    """The answer, piece by piece. A client that goes away ends the block, and with it the device's work."""
    generation = scheduler_of(request).generate(question.prompt, max_tokens=question.max_tokens)

    async def texts() -> AsyncIterator[str]:
        async with generation:
            async for piece in generation:
                yield piece.text

    stream = texts()
    # A refusal comes with the first piece, while the answer's status is still open.
    first = await anext(stream, "")

    async def whole() -> AsyncIterator[str]:
        yield first
        async for text in stream:
            yield text

    return StreamingResponse(whole(), media_type="text/plain")


@app.post("/decide")
async def decide(judgement: Judgement, request: Request) -> dict[str, Any]:
    """A probability for each row, before any other work."""
    result = await scheduler_of(request).decide(judgement.instruction, judgement.rows, deadline=5)
    return {"outcome": result.outcome, "reason": result.reason, "probability": result.scores.get("probability")}


@app.get("/health")
async def health(request: Request) -> dict[str, Any]:
    """Whether requests are served at this moment."""
    readiness = scheduler_of(request).readiness()
    return {"ready": readiness.ready, "state": readiness.state, "revision": readiness.revision}
