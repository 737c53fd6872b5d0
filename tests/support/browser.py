"""Debian's Chromium without a window, as a test drives it: through the pipe of its DevTools, which needs no library."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

LONGEST_WAIT_SECONDS = 30.0


class Page:
    """One tab. What goes wrong in it (exceptions, refusals by its policy, failed loads) is in `faults`."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = answers
        self._pending = b""
        self._number = 0
        self._session: str | None = None
        self.faults: list[str] = []
        self.requests: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(self, url: str, width: int = 1200, height: int = 900) -> None:
        """Returns when the page has loaded."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self._call("Page.navigate", url=url)
        self.wait_for(f"document.readyState === 'complete' && location.href.startsWith({json.dumps(url[:8])})")

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        while not self.ask(condition):
            if time.monotonic() > deadline:
                pytest.fail(f"not within {LONGEST_WAIT_SECONDS} s: {condition}; {self.faults}")
            time.sleep(0.02)

    def drag(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        """With the left button."""
        steps = (("mouseMoved", begin), ("mousePressed", begin), ("mouseMoved", end), ("mouseReleased", end))
        for kind, (x, y) in steps:
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def emulate(self, media: str, colour_scheme: str) -> None:
        """Media as "print", and a scheme "dark" or "light"; empty: as it is."""
        features = [{"name": "prefers-color-scheme", "value": colour_scheme}]
        self._call("Emulation.setEmulatedMedia", media=media, features=features)

    def write(self, text: str) -> None:
        self._call("Input.insertText", text=text)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer)
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._answers], [], [], LONGEST_WAIT_SECONDS)
            piece = os.read(self._answers, 1 << 20) if ready else b""
            if not piece:
                pytest.fail("the browser does not answer")
            self._pending += piece
        message, _, self._pending = self._pending.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def _note(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.faults.append(json.dumps(parameters["exceptionDetails"]))
            case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                self.faults.append(parameters["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])


@contextmanager
def browser_page(folder: Path) -> Iterator[Page]:
    """`folder`: for the browser's profile."""
    program = shutil.which("chromium")
    assert program, "there is no chromium: tools/dev/apt-test.txt"
    from_us, commands = os.pipe()
    answers, from_it = os.pipe()
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    words = [program, *options, "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}"]
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{from_us} 4>&{from_it}', "bash", *words],
        pass_fds=(from_us, from_it),
        env={**os.environ, "HOME": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(from_us)
    os.close(from_it)
    try:
        yield Page(commands, answers)
    finally:
        os.close(commands)  # At which it ends.
        os.close(answers)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
