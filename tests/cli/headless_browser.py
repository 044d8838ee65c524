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

    def open(self, address, width=1280, height=900, scheme="light"):
        return OpenPage(self, address, width, height, scheme)


# Elements that reach beyond the window, and words that reach beyond their drawing, as texts. What is in a scroller is not lost
# where the hint before it is to be seen.
CUT_OFF = """(() => {
  const width = document.documentElement.clientWidth, shown = e => e.checkVisibility() && e.getBoundingClientRect().width > 0;
  const name = e => `${e.tagName} ${e.className.baseVal ?? e.className} ${(e.textContent || '').trim().slice(0, 40)}`;
  const scroller = e => e.parentElement.closest('.scroll');
  const beyond = [...document.body.querySelectorAll('*')].filter(e => shown(e) && !e.ownerSVGElement && !scroller(e))
    .filter(e => e.getBoundingClientRect().right > width + 1 || e.getBoundingClientRect().left < -1);
  const silent = [...document.querySelectorAll(document.scripts.length ? '.scroll' : 'none')].filter(shown)  // scripts write hints
    .filter(e => (e.scrollWidth > e.clientWidth + 1) === e.previousElementSibling.hidden);
  const words = [...document.querySelectorAll('svg[role=img] text')].filter(shown).filter(e => {
    const drawing = e.closest('svg[role=img]').getBoundingClientRect(), box = e.getBoundingClientRect();
    return box.left < drawing.left - 1 || box.right > drawing.right + 1 || box.top < drawing.top - 1 || box.bottom > drawing.bottom + 1; });
  return [...beyond, ...silent, ...words].map(name);
})()"""


class OpenPage:
    """A page as a browser of some width shows it, in light or dark. `complaints` are script errors and console messages, `requests` the addresses it asked for."""

    def __init__(self, browser, address, width, height, scheme):
        self.browser, self.heard = browser, []
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.show_as(scheme)
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

    def show_as(self, scheme, media=""):
        """As a reader who prefers light or dark sees it; `media` "print": on paper."""
        self.call("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}])

    def cut_off(self):
        """What cannot be read or reached, by CUT_OFF."""
        return self.evaluate(CUT_OFF)

    def hover(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def wait_until(self, expression):
        """Waits until it is true in the page."""
        deadline = time.monotonic() + PATIENCE
        while not self.evaluate(f"Boolean({expression})"):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {PATIENCE} seconds: {expression}")
            time.sleep(0.05)

    def click(self, selector):
        """With the mouse, in the middle of the first element that fits; it is scrolled into view."""
        x, y = self.evaluate(f"""(() => {{
            const element = document.querySelector({json.dumps(selector)});
            element.scrollIntoView({{block: 'center'}});
            const box = element.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key):
        """A key by its name, as "Tab" or "ArrowRight"."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        text = {"text": "\r"} if key == "Enter" else {"text": " "} if key == " " else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code="Space" if key == " " else key, windowsVirtualKeyCode=codes[key], **(text if kind == "keyDown" else {}))

    def screenshot(self, path):
        """A PNG of what the window shows."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def print_pdf(self):
        """The printed page, base64 of a PDF."""
        return self.call("Page.printToPDF", printBackground=True)["data"]
