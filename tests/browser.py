"""A real headless Chromium, asked over its own pipe (Chrome DevTools Protocol, --remote-debugging-pipe), so that no library is needed."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
from pathlib import Path
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "google-chrome")
PROGRAM = next((path for path in map(shutil.which, NAMES) if path), None)
# --no-sandbox: root has no sandbox, and the pages are our own
ARGUMENTS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe", "about:blank")


class Browser:
    """One page. `seen` are all events that it sent, in their order."""

    def __init__(self, profile: Path) -> None:
        (commands, self.writer), (self.reader, answers) = os.pipe(), os.pipe()
        # The browser's ends are the file descriptors 3 and 4, which pipes of ours may have.
        ends = [fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (commands, answers)]

        def connect() -> None:
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.process = subprocess.Popen(
            [PROGRAM, f"--user-data-dir={profile}", *ARGUMENTS], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, preexec_fn=connect, pass_fds=(3, 4))
        for each in (commands, answers, *ends):
            os.close(each)
        self.count, self.rest, self.session = 0, b"", {}
        self.seen: list[dict[str, Any]] = []
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(each["targetId"] for each in targets if each["type"] == "page")
        self.session = {"sessionId": self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]}
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.count += 1
        os.write(self.writer, json.dumps({"id": self.count, "method": method, "params": parameters, **self.session}).encode() + b"\0")
        while True:
            message = self.receive()
            if message.get("id") == self.count:
                assert "error" not in message, message
                return message["result"]
            self.seen.append(message)

    def receive(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.reader], [], [], 60)
            part = os.read(self.reader, 65536) if ready else b""
            assert part, f"{PROGRAM} has ended, or says nothing for a minute"
            self.rest += part
        text, _, self.rest = self.rest.partition(b"\0")
        return json.loads(text)

    def open(self, path: Path, width: int, dark: bool = False) -> None:
        """Load a page as a screen of this width shows it, and forget what was seen of the page before."""
        self.seen.clear()
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=width < 600)
        scheme = "dark" if dark else "light"
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask("Page.navigate", url=path.as_uri())
        while not any(each.get("method") == "Page.loadEventFired" for each in self.seen):
            self.seen.append(self.receive())

    def value(self, expression: str) -> Any:
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def requests(self) -> list[str]:
        return [each["params"]["request"]["url"] for each in self.seen if each.get("method") == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """What the console says, whoever says it."""
        said = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening")
        return [json.dumps(each["params"]) for each in self.seen if each.get("method") in said]

    def picture(self, path: Path, height: int) -> None:
        width = self.value("document.documentElement.clientWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]))

    def close(self) -> None:
        self.ask("Browser.close")
        os.close(self.writer)
        self.process.wait(timeout=30)
        os.close(self.reader)
