"""Headless Chromium over a pipe (Chrome DevTools Protocol): no port, no further package."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
from pathlib import Path
from typing import Any

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome"))), None
)
_PATIENCE_SECONDS = 120


class Page:
    """One page of a browser of its own; `errors` and `requests` collect what the page did wrong and asked for."""

    def __init__(self, profile: Path) -> None:
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # The protocol reads descriptor 3 and writes descriptor 4.
        command = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            [
                "bash", "-c", command, "bash", str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu",
                "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank",
            ],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._unread = b""
        self._count = 0
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method and wait for its answer; what happens meanwhile is kept."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self._events.append(answer)

    def open(
        self, file: Path, *, width: int = 1440, height: int = 900, dark: bool = False, phone: bool = False
    ) -> None:
        """Load a file in a window of that size."""
        self._events.clear()
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=features)
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        self.send("Page.navigate", url=file.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._events.append(self._read())

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        """One key, as a keyboard gives it."""
        pressed = {"key": key, "code": key, "windowsVirtualKeyCode": code, **({"text": text} if text else {})}
        self.send("Input.dispatchKeyEvent", type="keyDown", **pressed)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def screenshot(self, file: Path) -> None:
        """The window as a PNG."""
        file.write_bytes(base64.b64decode(self.send("Page.captureScreenshot")["data"]))

    def complaints(self) -> list[dict[str, Any]]:
        """Exceptions, console messages and log entries since the page was opened."""
        bad = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [event for event in self._events if event.get("method") in bad]

    def requests(self) -> list[str]:
        """Addresses that the page asked for since it was opened."""
        asked = [event for event in self._events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in asked]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            if not select.select([self._in], [], [], _PATIENCE_SECONDS)[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self._in, 1 << 20)
            if not piece:
                raise EOFError("the browser is gone")
            self._unread += piece
        message, _, self._unread = self._unread.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer
