"""Backend `endpoint`: a server on the loopback that speaks OpenAI's protocol answers as backend `hf` does."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tokenweight.errors import StageError
from tokenweight.evaluation import endpoint
from tokenweight.evaluation.benchmark import Unit, UnitRun
from tokenweight.evaluation.rows import Row, read_rows
from tokenweight.evaluation.run import evaluate_checkpoint
from tokenweight.pipeline.store import Store
from tokenweight.recipes import Inputs
from tokenweight.recipes.options import ModelOptions
from tokenweight.recipes.schema import Evaluation, Execution
from tokenweight.tasks.experiments import plan_models

Run = Callable[..., tuple[int, str, str]]
UNITS = [Unit("bbh", "navigate"), Unit("bbh", "object_counting")]


class Server(ThreadingHTTPServer):
    """One model, called tiny; `failures` answers more are refused; `asked` holds each request."""

    def __init__(self, checkpoint: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="float32")
        self.tokenizer = AutoTokenizer.from_pretrained(checkpoint)
        self.one_at_a_time, self.failures = threading.Lock(), 0
        self.asked: list[dict[str, Any]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def answer(self, asked: dict[str, Any], ids: list[int]) -> str:
        import torch

        given = torch.tensor([ids])
        found = self.model.generate(given, max_new_tokens=asked["max_tokens"], do_sample=False, pad_token_id=1)
        text = str(self.tokenizer.decode(found[0, len(ids) :], skip_special_tokens=True))
        return min((text.partition(stop)[0] for stop in asked.get("stop", ())), key=len, default=text)


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        odd = {"/v1/html/models": b"<html>", "/v1/other/models": b'{"models": []}'}
        if self.path in odd:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(odd[self.path])
            return None
        if self.path == "/v1/words/models":
            self.wfile.write(b"SSH-2.0\r\n")
            return None
        found = self.path == "/v1/models"
        return self._send({"data": [{"id": "tiny"}]} if found else {}, 200 if found else 404)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/completions":
            return self._send({}, 404)
        with self.server.one_at_a_time:
            if self.server.failures:
                self.server.failures -= 1
                return self._send({"error": "busy"}, 503)
            self.server.asked.append(asked)
            texts = [self.server.answer(asked, ids) for ids in asked["prompt"]]
        return self._send({"choices": [{"index": i, "text": text} for i, text in enumerate(texts)]}, 200)

    def _send(self, content: Any, status: int) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server(checkpoint) as server:
        yield server
        server.shutdown()


def rows_by(
    backend: str, checkpoint: Path, evaluation: Evaluation, execution: Execution, out: Path, context: int = 512
) -> list[list[Row]]:
    own = evaluation.model_copy(update={"backend": backend})
    runs = [UnitRun(unit, (), out / backend / unit.task) for unit in UNITS]
    list(evaluate_checkpoint(checkpoint, runs, own, context, execution))
    return [read_rows(run.out_dir) for run in runs]


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_server_is_asked_the_same_and_answers_the_same(
    at_once: int, server: Server, checkpoint: Path, evaluation: Evaluation, execution: Execution, tmp_path: Path
) -> None:
    pytest.importorskip("tenacity")
    server.failures = 1  # which is asked again
    there = execution.model_copy(update={"endpoint": f"{server.url}#tiny", "eval_batch_sequences": at_once})
    found = rows_by("endpoint", checkpoint, evaluation, there, tmp_path)
    assert found == rows_by("hf", checkpoint, evaluation, execution, tmp_path)
    assert all(rows and any(row.output for row in rows) for rows in found)
    (prompts, *_) = [asked["prompt"] for asked in server.asked]
    assert prompts[0][0] == server.tokenizer.bos_token_id != prompts[0][1]
    asked = server.asked[0]
    assert (asked["model"], asked["temperature"], len(prompts)) == ("tiny", 0, 1)


def test_a_server_that_fails_is_one_line(
    server: Server, checkpoint: Path, evaluation: Evaluation, execution: Execution, tmp_path: Path
) -> None:
    pytest.importorskip("tenacity")
    server.failures = 10**6
    there = execution.model_copy(update={"endpoint": f"{server.url}#tiny", "eval_batch_sequences": 2})
    with pytest.raises(StageError, match=r"completions gave no answer \(503.*check the server and run again"):
        rows_by("endpoint", checkpoint, evaluation, there, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("perplexity --endpoint {url}", "backend endpoint: perplexity reads every token's NLL"),
        (
            "mmlu --endpoint {url}",
            "backend endpoint: mmlu asks for log-likelihoods, and a server gives only text",
        ),
        ("bbh --endpoint {url}#other", "has no model other (it has tiny); write http://127.0.0.1"),
        ("bbh --endpoint {url} --compare x", "is of one model; give one --model, without --compare"),
        ("bbh --endpoint http://127.0.0.1:9/v1", "--endpoint http://127.0.0.1:9/v1: does not answer"),
        ("bbh --endpoint 127.0.0.1:9/v1", "--endpoint 127.0.0.1:9/v1: is no address of a server; write for example"),
        (
            "bbh --endpoint {url}/html",
            "/html: does not speak OpenAI's protocol (/models is not its JSON); correct the address",
        ),
        ("bbh --endpoint {url}/other", "/other: does not speak OpenAI's protocol (/models is not its JSON); correct"),
        ("bbh --endpoint {url}/none", "/none: has no /models; correct the address, which mostly ends in /v1, or write"),
        ("bbh --endpoint {url}/none#tiny", "/none: has no /completions, or no model tiny; correct the address"),
        ("bbh --endpoint {url}/words", "/words: does not answer (the connection failed); start the server, or"),
        ("bbh --backend endpoint", "--endpoint: is missing, and backend endpoint needs it"),
    ],
)
def test_what_a_server_cannot_do_is_one_line_before_any_work(
    server: Server, checkpoint: Path, tmp_path: Path, run_command: Run, monkeypatch: pytest.MonkeyPatch,
    arguments: str, message: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(endpoint, "find_spec", lambda name: name)
    (tmp_path / "checkpoint").symlink_to(checkpoint)
    given = f"--scale smoke --lengths auto --benchmarks {arguments.format(url=server.url)}".split()
    code, _, err = run_command(tmp_path, "evaluate", "--model", "checkpoint", *given)
    assert (code, err.count("\n")) == (2, 1), err
    assert message in err
    assert not server.asked


def test_without_the_client_what_to_install_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_command: Run, checkpoint: Path
) -> None:
    monkeypatch.setattr(endpoint, "find_spec", lambda name: None)
    given = ("--scale", "smoke", "--lengths", "auto", "--benchmarks", "bbh", "--endpoint", "http://127.0.0.1:9/v1")
    code, _, err = run_command(tmp_path, "evaluate", "--model", str(checkpoint), *given)
    assert (code, err) == (
        2,
        "error: backend endpoint: lm-eval's client is not installed; run `pip install 'lm-eval[api]'`\n",
    )


def test_the_answers_of_another_server_are_others(checkpoint: Path, tmp_path: Path) -> None:
    found = []
    for server in ("http://127.0.0.1:1/v1#a", "http://127.0.0.1:1/v1#b", None):
        how = ModelOptions(scale="smoke", endpoint=server, backend="endpoint")
        planned, _ = plan_models([str(checkpoint)], how, Inputs(), Store(tmp_path), ["longbench"], [512], check=False)
        found.append({one.fingerprint for one in planned.graph.artifacts if one.stage.name == "evaluate"})
    assert found[0]
    assert not found[0] & found[1]
    assert not found[0] & found[2]
