"""What chat does with a context that is full, and with decisions that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support.commands import WAIT_S


def talk(started: Callable, config: Path, lines: bytes, *options: object) -> tuple[int, str]:
    process = started("chat", "--config", config, *options)
    out, err = process.communicate(lines, timeout=WAIT_S)
    assert b"Traceback" not in err
    return process.returncode, out.decode()


def test_an_answer_comes_where_its_decision_does_not_fit(started: Callable, small: Path, tmp_path: Path) -> None:
    config = tmp_path / "narrow.toml"
    config.write_text(small.read_text() + "[decision]\ncontext = 128\n")
    code, out = talk(started, config, b"y" * 300 + b"\n", "--tokens", 4)
    assert code == 0
    assert "asks for something: unavailable: row 0 takes " in out
    assert "(decision.context) of 128 tokens" in out
    assert "4 tokens" in out
    assert "not answered" not in out


def test_without_a_decision_model_chat_still_answers(started: Callable, small: Path, tmp_path: Path) -> None:
    config = tmp_path / "alone.toml"
    config.write_text("decision = false\n" + small.read_text())
    code, out = talk(started, config, b"hello\n", "--tokens", 4)
    assert code == 0
    assert "unavailable: no decision model" in out
    assert "4 tokens" in out


def test_a_full_context_offers_a_new_conversation(started: Callable, small: Path) -> None:
    long = b"z" * 900 + b"\n"
    code, out = talk(started, small, long + long + long + b"/new\n" + long, "--tokens", 4)
    assert code == 0
    assert out.count("not answered: the conversation has filled the context of 2,048 tokens; /new begins again") == 1
    assert out.count("prompt tokens reused") == 3


def test_an_answer_that_the_context_cuts_short_says_so(started: Callable, small: Path) -> None:
    code, out = talk(started, small, b"z" * 1900 + b"\n", "--tokens", 1000)
    assert code == 0
    assert "cut short: the conversation has filled the context; /new begins again" in out


def test_a_pipe_whose_every_message_was_refused_ends_with_3(started: Callable, small: Path) -> None:
    code, out = talk(started, small, b"x" * 3000 + b"\n" + b"x" * 4000 + b"\n")
    assert code == 3
    assert out.count("not answered: prompt of ") == 2
    assert "/new begins again" not in out.split("Ctrl-C stops an answer")[1]
