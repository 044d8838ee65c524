# SPDX-License-Identifier: Apache-2.0
"""The live view of runs that really train: what it shows, in a real browser, and that the training does not notice it."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import unittest
from pathlib import Path

from headless_browser import Browser
from in_folder import BALLAST, InFolder
from running_server import RunningServer, free_port

TINY = (
    "--model.width=16 --model.layers=2 --model.heads=2 --model.context=32 --training.threads=1 --training.batch=8 "
    "--training.validate_every=20 --training.validate_batches=2 --training.last_validate_batches=2 "
    "--training.sample_every=20 --training.sample_tokens=8 "
    "--data.builtin_bytes=60000 --experts.layers=1 --experts.count=4 --experts.groups=2 --experts.sublayers=1"
).split()
ENDLESS = "--training.steps=1000000"
PATIENCE = 120
HOSTILE = "<img src=x onerror=\"document.title='caught'\"> <script>document.title='caught'</script> " + "w" * 300
TALL = 2600  # pixels: pictures show all of it
PICTURES = os.environ.get("BALLAST_PICTURES")  # a folder for screenshots, to look at


def live_children():
    """Processes of `ballast serve --watch`, by the folder they run in."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"serve" in words and b"--watch" in words:
                found[int(process.name)] = os.readlink(process / "cwd")
        except OSError:
            pass  # it has ended meanwhile
    return found


class Live(InFolder):
    def start(self, *arguments):
        """A training that goes on; ended with the test at the latest."""
        process = subprocess.Popen([BALLAST, "train", *TINY, *map(str, arguments)], cwd=self.folder, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, encoding="utf-8", errors="replace")

        def end():
            if process.poll() is None:
                process.kill()
            process.communicate()

        self.addCleanup(end)
        return process

    def wait_for(self, what, true):
        deadline = time.monotonic() + PATIENCE
        while not true():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.05)

    def steps_of(self, run):
        path = self.folder / run / "metrics.jsonl"
        return path.read_bytes().count(b'"tokens_per_second"') if path.exists() else 0

    def watchers(self):
        return [process for process, folder in live_children().items() if Path(folder) == self.folder.resolve()]

    def stop(self, process):
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 0)


class Undisturbed(Live):
    def test_with_eight_watchers_losses_are_equal_to_the_bit(self):
        self.run_well("train", *TINY, "--training.steps=60", "--run", "alone")
        end, seen = threading.Event(), [[] for _ in range(8)]

        def watch(port, steps):
            connection, query = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE), ""
            while not end.is_set():
                connection.request("GET", f"/api/live?run=watched{query}")
                news = json.loads(connection.getresponse().read())
                self.assertIn("anew", news)
                self.assertEqual(news["anew"], not query)
                steps += news["points"]["step"]
                query = f"&life={news['life']}&from={news['end']}&validations={news['validations_seen']}&samples={news['samples_seen']}"
            connection.close()

        with RunningServer("watched", "--watch", cwd=self.folder) as server:
            self.assertEqual(server.json("/api/live"), {"runs": [{"name": "watched", "state": "waiting", "step": 0, "steps": None}]})
            threads = [threading.Thread(target=watch, args=(server.port, steps)) for steps in seen]
            for thread in threads:
                thread.start()
            try:
                self.run_well("train", *TINY, "--training.steps=60", "--run", "watched")
                self.wait_for("all have seen all steps", lambda: all(len(steps) >= 60 for steps in seen))
            finally:
                end.set()
                for thread in threads:
                    thread.join()
            news = server.json("/api/live?run=watched")
            self.assertEqual(server.ask("GET", "/api/live?run=other")[0], 404)
        for steps in seen:
            self.assertEqual(steps, list(range(1, 61)))
        self.assertEqual(self.losses("watched"), self.losses("alone"))
        self.assertEqual([line["valid_loss"] for line in self.records("watched") if "valid_loss" in line],
                         [line["valid_loss"] for line in self.records("alone") if "valid_loss" in line])
        self.assertEqual(news["points"]["loss"], list(self.losses("alone").values()))
        self.assertEqual((news["state"], news["step"], news["steps"], news["checkpoint"]), ("ended", 60, 60, 60))
        self.assertEqual(news["validations"]["step"], [20, 40, 60])
        self.assertEqual([sample["step"] for sample in news["samples"]], [20, 40, 60])


class BesideTraining(Live):
    """train --watch."""

    def state(self, port, run):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            connection.request("GET", f"/api/live?run={run}")
            return json.loads(connection.getresponse().read())["state"]
        except (OSError, http.client.HTTPException):
            return "away"
        finally:
            connection.close()

    def assert_gone(self):
        self.wait_for("the watcher has ended", lambda: not self.watchers())

    def test_it_ends_with_the_training_however_that_ends(self):
        for workers, end in ((1, signal.SIGINT), (1, signal.SIGKILL), (2, signal.SIGINT)):
            run, port = f"run{workers}{end.name}", free_port()
            process = self.start("--run", run, ENDLESS, f"--watch={port}", *(["--workers", workers] if workers > 1 else []))
            self.assertIn(f"live view: http://127.0.0.1:{port}/live", process.stderr.readline())
            threading.Thread(target=process.stderr.read, daemon=True).start()  # a full pipe would stop the training
            self.wait_for("it is seen training", lambda: self.state(port, run) == "training")
            watcher, = self.watchers()
            self.assertEqual(os.getpriority(os.PRIO_PROCESS, watcher), 19)
            process.send_signal(end)
            self.assertEqual(process.wait(PATIENCE), 0 if end == signal.SIGINT else -end)
            self.assert_gone()
            for file in ("run.json", "config.toml"):
                self.assertNotIn("watch", (self.folder / run / file).read_text())

    def test_the_training_goes_on_without_it(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            process = self.start("--run", "run", ENDLESS, f"--watch={port}")
            self.assertEqual(process.stderr.readline(), f"warning: --watch: port {port} is taken; using another\n")
            other = int(re.search(r"http://127.0.0.1:(\d+)/live", process.stderr.readline())[1])
            said = []
            reader = threading.Thread(target=lambda: said.append(process.stderr.read()))
            reader.start()
            self.wait_for("it is seen training", lambda: self.state(other, "run") == "training")
        watcher, = self.watchers()
        os.kill(watcher, signal.SIGKILL)
        steps = self.steps_of("run")
        self.wait_for("it goes on", lambda: self.steps_of("run") > steps + 20)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(PATIENCE), 0)
        reader.join()
        self.assertIn("warning: --watch: the live view ended before the training", said[0])
        self.refused("train", *TINY, "--run", "other", "--watch=70000", says="--watch=70000: a port is a number")


class Page(Live):
    def assert_whole(self, page, width, server):
        """Nothing is cut or beside the page, nothing was complained of, nothing was asked of others."""
        self.assertEqual(page.complaints, [])
        self.assertEqual([address for address in page.requests if not address.startswith(server.url)], [])
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), width)
        beside = "[...document.querySelectorAll('main *')].filter(e => e.getClientRects().length && !e.closest('svg') && (e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1))"
        self.assertEqual(page.evaluate(f"{beside}.map(e => e.outerHTML.slice(0, 80))"), [])
        cut = "[...document.querySelectorAll('main *')].filter(e => !e.closest('svg') && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display != 'inline' && e.clientWidth)"
        self.assertEqual(page.evaluate(f"{cut}.map(e => e.outerHTML.slice(0, 80))"), [])

    def picture(self, page, name):
        if PICTURES:
            page.screenshot(Path(PICTURES) / f"live_{name}.png")

    def test_it_follows_a_run_from_before_its_start_to_its_end(self):
        shown = "+document.getElementById('step').textContent"
        state = "document.getElementById('state').textContent"
        with Browser() as browser, RunningServer("run", "--watch", cwd=self.folder) as server:
            page = browser.open(server.url + "live", 1280, TALL)
            page.wait_until(f"{state} == 'waiting for a trainer'")
            self.assert_whole(page, 1280, server)
            training = self.start("--run", "run", ENDLESS)
            threading.Thread(target=training.stderr.read, daemon=True).start()
            page.wait_until(f"{state}.startsWith('training') && {shown} >= 45 && document.querySelectorAll('#samples article').length >= 2")
            before = page.evaluate(shown)
            page.wait_until(f"{shown} > {before}")
            for chart in ("loss", "speed", "assignment"):
                page.wait_until(f"document.querySelector('#{chart}-chart svg.chart path.smooth')?.getBoundingClientRect().width > 100")
            for chart in ("loss", "balance"):
                page.wait_until(f"document.querySelectorAll('#{chart}-chart svg.chart circle.dot').length >= 2")
            self.assert_whole(page, 1280, server)
            self.picture(page, "training_1280_light")
            self.stop(training)
            page.wait_until(f"{state} == 'stopped'")
            steps = self.steps_of("run")
            page.wait_until(f"{shown} == {steps}")

            # A run that goes on from an earlier step: what was shown of later ones goes.
            lines = (self.folder / "run" / "metrics.jsonl").read_text().splitlines(keepends=True)
            kept = [line for line in lines if json.loads(line)["step"] <= 30]
            (self.folder / "run" / "metrics.new").write_text("".join(kept))
            os.replace(self.folder / "run" / "metrics.new", self.folder / "run" / "metrics.jsonl")
            page.wait_until(f"{shown} == 30")

            with open(self.folder / "run" / "samples.txt", "a") as samples:
                samples.write(f"== step 99 ==\n  {HOSTILE}\n\n")
            page.wait_until(f"document.querySelector('#samples pre').textContent == {json.dumps(HOSTILE)}")
            self.assertEqual(page.evaluate("document.querySelectorAll('#samples img, #samples script').length"), 0)
            self.assertNotIn("caught", page.evaluate("document.title"))

            # By keys: the loss at the first step.
            page.evaluate("document.querySelector('#loss-chart svg.chart').focus()")
            page.press("Home")
            loss = f"{json.loads(kept[0])['loss']:.3f} at step 1"
            self.assertEqual(page.evaluate("document.querySelector('#loss-chart output').textContent"), loss)
            self.assert_whole(page, 1280, server)
            for width, scheme in ((1280, "dark"), (390, "light"), (390, "dark")):
                other = browser.open(server.url + "live", width, TALL, scheme)
                other.wait_until(f"{shown} == 30 && document.querySelector('#samples pre')")
                self.assert_whole(other, width, server)
                self.picture(other, f"stopped_{width}_{scheme}")

    def test_it_lists_runs_and_outlives_the_server(self):
        for run in ("one", "two"):
            self.run_well("train", *TINY[:-4], "--experts.layers=0", "--training.steps=20", "--run", run)
        name = "document.getElementById('name')?.textContent"
        with Browser() as browser:
            with RunningServer("one", "two", "--watch", cwd=self.folder, port=free_port()) as server:
                page = browser.open(server.url + "live", 390)
                page.wait_until(f"{name} == 'one' && document.getElementById('state').textContent == 'ended'")
                self.assertEqual(page.evaluate("[...document.querySelectorAll('#runs a')].map(a => a.innerText.split('\\n'))"),
                                 [["one", "ended, step 20 of 20"], ["two", "ended, step 20 of 20"]])
                self.assertTrue(page.evaluate("document.getElementById('balance-chart').hidden"), "a dense model has no experts")
                page.evaluate("document.querySelectorAll('#runs a')[1].click()")
                page.wait_until(f"{name} == 'two' && document.querySelector('#runs a[aria-current]')?.textContent.startsWith('two')")
                self.assert_whole(page, 390, server)
                port = server.port
            page.wait_until("document.getElementById('trouble').textContent.includes('server has ended')")
            again = subprocess.Popen([BALLAST, "serve", "one", "two", "--watch", "--port", str(port)], cwd=self.folder,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                page.wait_until("document.getElementById('trouble').hidden")
            finally:
                again.kill()
                again.wait()


if __name__ == "__main__":
    unittest.main()
