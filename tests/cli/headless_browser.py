# SPDX-License-Identifier: Apache-2.0
"""A real Chromium without a window, driven over its debugging pipe: pages are opened and asked, and what goes wrong in them is heard."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 120  # seconds until a browser that does not answer is given up


class Browser:
    """`with Browser() as browser:` starts one, and ends it with all it wrote."""

    def __init__(self):
        program = next((path for path in map(shutil.which, PROGRAMS) if path), None)
        if program is None:
            raise RuntimeError("there is no Chromium: run tools/setup --tests")
        self.profile = tempfile.mkdtemp(prefix="ballast-browser-")
        # Chromium reads commands from its file 3 and writes answers to its file 4.
        commands, self.to = os.pipe()
        self.answers, answers = os.pipe()
        script = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", script, "browser", str(commands), str(answers), program, "--headless", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--hide-scrollbars",
             f"--user-data-dir={self.profile}", "--remote-debugging-pipe", "about:blank"],
            pass_fds=(commands, answers), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(answers)
        self.buffer, self.number = b"", 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.to)  # it ends when its pipe does
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.answers)
        shutil.rmtree(self.profile, ignore_errors=True)

    def next_message(self, deadline):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.answers], [], [], max(0, deadline - time.monotonic()))
            part = os.read(self.answers, 1 << 20) if ready else b""
            if not part:
                raise RuntimeError("the browser ended" if ready else f"the browser did not answer within {PATIENCE} seconds")
            self.buffer += part
        line, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, session=None, heard=None, **parameters):
        """The answer to a command; events that come meanwhile are added to `heard`."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self.next_message(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            if heard is not None:
                heard.append(answer)

    def open(self, address, width=1200, height=900, colours="light"):
        return OpenPage(self, address, width, height, colours)


class OpenPage:
    """A page as a browser of some width shows it. `complaints` are script errors and console messages, `requests` the addresses it asked for."""

    def __init__(self, browser, address, width, height, colours):
        self.browser, self.heard = browser, []
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": colours}])
        self.call("Page.navigate", url=address)
        deadline = time.monotonic() + PATIENCE
        while not any(event.get("method") == "Page.loadEventFired" for event in self.heard):
            self.heard.append(browser.next_message(deadline))
        self.evaluate("new Promise(done => setTimeout(done, 50))")  # what scripts do after loading is heard too

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, self.heard, **parameters)

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def events(self, method):
        return [event["params"] for event in self.heard if event.get("method") == method and event.get("sessionId") == self.session]

    @property
    def complaints(self):
        thrown = [event["exceptionDetails"].get("exception", {}).get("description", "?") for event in self.events("Runtime.exceptionThrown")]
        console = [str([argument.get("value") for argument in event["args"]]) for event in self.events("Runtime.consoleAPICalled")]
        log = [event["entry"]["text"] for event in self.events("Log.entryAdded")]
        return thrown + console + log

    @property
    def requests(self):
        return [event["request"]["url"] for event in self.events("Network.requestWillBeSent")]

    def wait_until(self, expression):
        """Until that is true in the page."""
        deadline = time.monotonic() + PATIENCE
        while not self.evaluate(expression):
            if time.monotonic() > deadline:
                raise RuntimeError(f"within {PATIENCE} seconds it was never true that {expression}")
            time.sleep(0.1)

    def hover(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, file):
        """The whole page as a PNG."""
        height = self.evaluate("document.documentElement.scrollHeight")
        width = self.evaluate("innerWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        Path(file).write_bytes(base64.b64decode(picture))

    def print_pdf(self):
        """The printed page, base64 of a PDF."""
        return self.call("Page.printToPDF", printBackground=True)["data"]
