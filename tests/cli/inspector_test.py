# SPDX-License-Identifier: Apache-2.0
"""The inspector of `ballast serve`, in a real browser: a click path and a keyboard path through all views, on wide screens and phones, in the
light and in the dark; what the server answers it, and hostile names and texts. With BALLAST_PICTURES=FOLDER, pictures to look at."""

import json
import math
import os
import shutil
import tempfile
import unittest
import urllib.parse
from pathlib import Path

from headless_browser import Browser
from in_folder import ballast
from running_server import RunningServer

WIDE, PHONE = 1280, 390
TINY = (
    "--model.width=32 --model.layers=2 --model.heads=2 --model.context=32 --experts.layers=2 --experts.sublayers=1 --experts.count=6 "
    "--training.batch=8 --training.threads=1 --training.validate_every=0 --training.validate_batches=2 --training.sample_tokens=0 "
    "--training.last_validate_batches=0 --data.builtin_bytes=80000 --training.steps=30 --checkpoint.every=10 --checkpoint.keep_last=3 --optimizer.warmup_steps=3"
).split()
HOSTILE = '<img src=x onerror="document.title=1">'
READY = "document.querySelectorAll('.token').length > 0 && !document.querySelector('.busy')"
# Elements that stand out of the window, but for what lies in something that scrolls.
CUT = """[...document.querySelectorAll('body *')].filter((element) => {
    const box = element.getBoundingClientRect();
    const scrolls = (one) => one && (['auto', 'scroll'].includes(getComputedStyle(one).overflowX) || scrolls(one.parentElement));
    return box.width > 0 && (box.right > WIDTH + 1 || box.left < -1) && !element.classList.contains('skip') && !scrolls(element.parentElement);
}).map((element) => element.outerHTML.slice(0, 120))"""
# Text that does not fit into its own element and cannot be scrolled to.
HIDDEN = """[...document.querySelectorAll('body *')].filter((element) => element.clientWidth > 0 && element.scrollWidth > element.clientWidth + 1 &&
    getComputedStyle(element).overflowX === 'hidden').map((element) => element.outerHTML.slice(0, 120))"""


class Inspector(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="ballast-inspector-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        for run, more in (("base", []), ("gates", ["--experts.router=switch", "--training.steps=10"]), ("dense", ["--experts.layers=0", "--training.steps=10"])):
            trained = ballast("train", *TINY, *more, "--run", run, cwd=cls.folder)
            if trained.returncode != 0:
                raise AssertionError(trained.stderr)
        shutil.copytree(cls.folder / "base", cls.folder / HOSTILE)
        shutil.rmtree(cls.folder / HOSTILE / "data")
        cls.server = cls.enterClassContext(RunningServer("base", "gates", "dense", HOSTILE, cwd=cls.folder))
        cls.browser = cls.enterClassContext(Browser())

    def open(self, view="", width=WIDE, scheme="light"):
        page = self.browser.open(self.server.url + (f"#{urllib.parse.urlencode(view)}" if view else ""), width, 900, scheme)
        page.width = width
        page.wait_until(READY)
        return page

    def assert_in_order(self, page, name):
        """Nothing went wrong in the page, nothing came from outside, and nothing is cut."""
        self.assertEqual(page.complaints, [], name)
        for address in page.requests:
            self.assertTrue(address.startswith((self.server.url, "data:", "about:blank")), address)
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), page.width, name)
        self.assertEqual(page.evaluate(CUT.replace("WIDTH", str(page.width))), [], name)
        self.assertEqual(page.evaluate(HIDDEN), [], name)
        self.assertEqual(page.evaluate("document.querySelectorAll('main [style*=\"url\"], main script, main img').length"), 0)
        if "BALLAST_PICTURES" in os.environ:
            page.screenshot(Path(os.environ["BALLAST_PICTURES"]) / f"{name}.png")

    def asked(self, **query):
        return self.server.json("/api/expert?" + urllib.parse.urlencode(query))

    def inspect(self, **more):
        return self.server.json("/api/inspect", {"run": "base", "text": "The rain", "routing": "greedy"} | more)

    def refused(self, method, path, body=None):
        status, _, data = self.server.ask(method, path, body)
        self.assertEqual(status, 400, data)
        return json.loads(data)["error"]["message"]

    def text_of(self, page, selector):
        return page.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    def walk(self, width, scheme):
        """All views by mouse."""
        name = f"{width}-{scheme}"
        page = self.open(width=width, scheme=scheme)
        self.assertGreater(page.evaluate("document.querySelector('#text').value.length"), 40, "a text to begin with")
        self.assertEqual(page.evaluate("document.querySelectorAll('.view').length"), 1)
        self.assert_in_order(page, f"{name}-first")

        page.click(".token[data-token='3']")
        told = self.text_of(page, "#about-token")
        for words in ("Token 4 of", "loss", "gate", "cost", "BASE layer 0", "BASE layer 1", "score less price"):
            self.assertIn(words, told)

        for routing in ("greedy", "balanced"):
            if not page.evaluate(f"document.querySelector('input[value={routing}]').checked"):
                page.click(f"input[value={routing}]")
        page.wait_until(f"document.querySelectorAll('.tokens').length >= 2 && {READY}")
        page.click(".token[data-token='2']")
        self.assertIn("The same token in all views", self.text_of(page, "#about-token"))
        self.assert_in_order(page, f"{name}-routings")

        for colour in ("loss", "cost"):
            page.click(f"input[value={colour}]")
            self.assertEqual(page.evaluate("document.querySelector('.tokens').dataset.colour"), colour)
            self.assertRegex(self.text_of(page, ".token .told"), r"^\d+\.\d+$")
        self.assert_in_order(page, f"{name}-cost")
        page.click("input[value=expert]")

        page.click(".expert[data-expert='1']")
        page.wait_until("document.querySelector('#about-expert .contexts')")
        told = self.text_of(page, "#about-expert")
        for words in ("Expert 1 of BASE layer 0", "fair shares, greedy", "fair shares, balanced", "Price over training", "Tokens it gets", "the whole validation split", "Domains", "too few to tell",
                      "In context", "Nearest by embedding"):
            self.assertIn(words, told)
        self.assertGreater(page.evaluate("document.querySelectorAll('#about-expert mark').length"), 0)
        self.assert_in_order(page, f"{name}-expert")
        top = page.evaluate("document.querySelector('#about-expert h2').getBoundingClientRect().top")
        self.assertTrue(0 <= top < 500, f"what was opened is in view: {top}")
        other = page.evaluate("document.querySelector('.near .badge').textContent")
        page.click(".near button")
        page.wait_until(f"document.querySelector('#about-expert h2').textContent.includes('Expert {other} ')")

        page.evaluate("(() => { const slider = document.querySelector('input[type=range]'); slider.value = 0; slider.dispatchEvent(new Event('input')); })()")
        page.wait_until(f"document.querySelector('#about-expert').innerText.includes('base, step 10') && {READY} && document.querySelector('#about-expert .contexts')")
        self.assertIn("step 10", self.text_of(page, ".run-head"))
        self.assertIn("windows spread over the validation split", self.text_of(page, "#about-expert"), "validation.json is of another step")
        page.evaluate("(() => { const layer = document.querySelector('.run-head select'); layer.value = 1; layer.dispatchEvent(new Event('change')); })()")
        self.assertTrue(page.evaluate("document.querySelector('#about-expert').hidden"), "it was of the other layer")

        page.evaluate("(() => { const other = document.querySelector('#run-b'); other.value = 'gates'; other.dispatchEvent(new Event('change')); })()")
        page.wait_until(f"document.querySelectorAll('.run').length === 2 && {READY}")
        self.assertIn("gates", self.text_of(page, "#views"))
        self.assert_in_order(page, f"{name}-two")
        address = page.evaluate("location.href")
        again = self.browser.open(address, width, 900, scheme)
        again.wait_until(READY)
        self.assertEqual(self.text_of(again, "#views"), self.text_of(page, "#views"), "a link shows the same")

    def test_wide_and_light(self):
        self.walk(WIDE, scheme="light")

    def test_wide_and_dark(self):
        self.walk(WIDE, scheme="dark")

    def test_phone_and_light(self):
        self.walk(PHONE, scheme="light")

    def test_phone_and_dark(self):
        self.walk(PHONE, scheme="dark")

    def test_by_keyboard_alone(self):
        page = self.open({"a": "base", "t": "one two three four five six\nseven eight nine ten"})
        for _ in range(40):
            page.press("Tab")
            if page.evaluate("document.activeElement.classList.contains('token')"):
                break
        focused = "Number(document.activeElement.dataset.token)"
        self.assertEqual(page.evaluate(focused), 0)
        self.assertNotEqual(page.evaluate("getComputedStyle(document.activeElement).outlineStyle"), "none", "one sees where one is")
        page.press("ArrowRight")
        page.press("ArrowRight")
        self.assertEqual(page.evaluate(focused), 2)
        self.assertIn("Token 3 of", self.text_of(page, "#about-token"))
        page.press("ArrowDown")
        below = page.evaluate(focused)
        self.assertGreater(below, 2)
        page.press("ArrowUp")
        self.assertLess(page.evaluate(focused), below)
        page.press("End")
        last = page.evaluate("document.querySelectorAll('.token').length - 1")
        self.assertEqual(page.evaluate(focused), last)
        self.assertEqual(page.evaluate("document.querySelectorAll('.token[tabindex=\"0\"]').length"), 1, "one stop of Tab")
        words = page.evaluate("document.activeElement.getAttribute('aria-label')")
        for part in ("token", "expert", "gate", "second choice", "cost", "loss"):
            self.assertIn(part, words)
        page.press("Enter")
        page.wait_until("document.querySelector('#about-expert .contexts')")
        self.assertTrue(page.evaluate("document.querySelector('#about-expert').contains(document.activeElement)"))
        page.press("Escape")
        self.assertTrue(page.evaluate("document.querySelector('#about-expert').hidden"))
        self.assertEqual(page.evaluate(focused), last, "and back where one was")
        unnamed = """[...document.querySelectorAll('button, select, input, textarea, [role=option]')].filter((one) =>
            !(one.getAttribute('aria-label') || one.labels?.length || one.textContent.trim())).map((one) => one.outerHTML)"""
        self.assertEqual(page.evaluate(unnamed), [])

    def test_another_run_brings_its_own_sample_and_keeps_what_was_typed(self):
        page = self.open({"a": HOSTILE, "t": "typed"})
        choose = "(() => {{ const runs = document.querySelector('#run-a'); runs.focus(); runs.value = '{}'; runs.dispatchEvent(new Event('change')); }})()"
        page.evaluate(choose.format("base"))
        page.wait_until(f"location.hash.includes('a=base') && {READY}")
        self.assertEqual(page.evaluate("document.querySelector('#text').value"), "typed")
        self.assertEqual(page.evaluate("document.activeElement.id"), "run-a", "the focus stays")
        page = self.open({"a": "gates"})
        sample = page.evaluate("document.querySelector('#text').value")
        self.assertEqual(sample, self.server.json("/api/sample?run=gates")["text"])
        page.evaluate("document.querySelector('#text').value = 'not yet looked at'")
        page.click("input[value=loss]")
        page.click("button[type=submit]")
        page.wait_until(f"document.querySelector('.tokens')?.innerText.includes('k') && location.hash.includes('t=not') && {READY}")

    def test_a_dense_model_has_losses_alone(self):
        page = self.open({"a": "dense", "t": "some text"})
        self.assertIn("losses alone", self.text_of(page, "#views"))
        self.assertEqual(page.evaluate("document.querySelectorAll('.expert').length"), 0)
        self.assert_in_order(page, "dense")

    def test_hostile_names_and_texts_are_shown_as_text(self):
        text = '<img src=x onerror="document.title=2"><script>document.title=3</script>\u202egnp.exe\0 \x1b[31m'
        page = self.open({"a": HOSTILE, "b": HOSTILE, "t": text, "r": "greedy,priced"}, PHONE)
        self.assertEqual(page.evaluate("document.title"), "Inspector · Ballast")
        self.assertIn(HOSTILE, self.text_of(page, "#views"))
        self.assertIn("<", self.text_of(page, ".tokens"))
        self.assertNotIn("\u202e", self.text_of(page, ".tokens"))
        page.click(".expert[data-expert='0']")
        page.wait_until("document.querySelector('#about-expert .note')")
        self.assertIn("is not beside it", self.text_of(page, "#about-expert"), "its data was deleted")
        self.assert_in_order(page, "hostile")
        sample = self.server.json("/api/sample?" + urllib.parse.urlencode({"run": HOSTILE}))
        self.assertEqual(sample["text"], "")
        self.assertIn("not beside it", sample["trouble"])

    def test_errors_are_told_in_words(self):
        page = self.open()
        page.evaluate("document.querySelector('#text').value = 'a '.repeat(5000)")
        page.click("button[type=submit]")
        page.wait_until("document.querySelector('.view .error')")
        self.assertIn("4096 can be looked at together", self.text_of(page, ".view .error"))
        page.evaluate("document.querySelector('#text').value = ''")
        page.click("button[type=submit]")
        page.wait_until("document.querySelector('.view .error')?.innerText.includes('type or paste')")
        strange = self.open({"a": "no such run", "sa": "77", "la": "9", "r": "sideways", "c": "mood", "x": "1.99"})
        self.assertEqual(strange.evaluate("document.querySelector('#run-a').value"), "base")
        self.assertEqual(strange.complaints, [])

    def test_what_is_cut_or_wrong_is_noticed(self):
        """Otherwise the other tests would say nothing."""
        page = self.open({"a": "base", "t": "some text"}, PHONE)
        self.assert_in_order(page, "whole")
        for fault in ("const wide = document.createElement('div'); wide.style.width = '500px'; wide.textContent = 'x'; document.body.append(wide)",
                      "const cut = document.createElement('div'); cut.style = 'width: 50px; overflow: hidden; white-space: nowrap'; "
                      "cut.textContent = 'words that do not fit'; document.body.append(cut)",
                      "fetch('http://ballast.invalid/x').catch(() => {})", "console.log('a word')"):
            page = self.open({"a": "base", "t": "some text"}, PHONE)
            page.evaluate(f"(() => {{ {fault}; }})()")
            page.evaluate("new Promise(done => setTimeout(done, 50))")
            with self.assertRaises(AssertionError, msg=fault):
                self.assert_in_order(page, "faulty")

    def test_a_server_that_ends_is_missed_in_words(self):
        with RunningServer("base", cwd=self.folder) as server:
            page = self.browser.open(server.url, WIDE, 900)
            page.wait_until(READY)
            self.assertEqual(server.stop(), 0)
        page.click("button[type=submit]")
        page.wait_until("document.body.innerText.includes('Is `ballast serve` still running?')")

    def test_a_text_is_told_token_by_token(self):
        found = self.inspect()
        self.assertEqual((found["run"], found["step"], found["routing"]), ("base", 30, "greedy"))
        self.assertEqual("".join(found["tokens"]["text"]), "The rain")
        count = len(found["tokens"]["id"])
        self.assertEqual([layer["layer"] for layer in found["layers"]], [0, 1])
        for layer in found["layers"]:
            self.assertEqual({len(layer[key]) for key in ("expert", "gate", "second", "best", "score", "second_score", "best_score")}, {count})
            self.assertEqual(layer["expert"], layer["best"])
            self.assertTrue(all(0 < gate <= 1 for gate in layer["gate"]))
            self.assertEqual(len(layer["prices"]), 6)
        self.assertEqual(self.inspect(step=10)["step"], 10)
        self.assertNotEqual(self.inspect(step=10)["tokens"]["loss"], found["tokens"]["loss"])

    def test_losses_are_those_of_eval(self):
        text = "two cups of flour and an egg. " * 4  # longer than the context
        (self.folder / "text.txt").write_text(text)
        evaluated = json.loads(ballast("eval", "base", "--data", "text.txt", "--routing", "priced", "--stride", "16", "--json", cwd=self.folder).stdout)
        losses = self.inspect(text=text, routing="priced")["tokens"]["loss"]
        ends = evaluated["tokens"] - len(losses)  # eval predicts the end of the text too
        self.assertEqual(ends, 1)
        self.assertGreater(evaluated["loss"] * evaluated["tokens"], sum(losses))
        self.assertLess(evaluated["loss"] * evaluated["tokens"] - sum(losses), 30, "which is one token's loss")

    def test_balanced_routing_is_balanced(self):
        found = self.inspect(text="the cat sat on the mat and looked at the rain", routing="balanced")
        for layer in found["layers"]:
            loads = [layer["expert"].count(expert) for expert in range(6)]
            self.assertLessEqual(max(loads) - min(loads), 1)

    def test_an_expert_is_told_from_the_last_validation_or_a_sample(self):
        for _ in range(600):
            known = self.asked(run="base", layer=1, expert=2)
            if known["contexts"]["state"] != "reading":
                break
        self.assertEqual(known["contexts"]["state"], "ready")
        validation = json.loads((self.folder / "base/validation.json").read_text())
        layer = validation["routings"][0]["layers"][1]
        self.assertEqual((known["use"]["of"], known["use"]["tokens"]), ("validation", validation["tokens"]))
        self.assertEqual(known["use"]["load"], layer["loads"][2])
        self.assertEqual([one["count"] for one in known["use"]["top_tokens"]], [one["count"] for one in layer["experts"][2]["tokens"]])
        self.assertAlmostEqual(sum(one["share"] for one in known["use"]["domains"]), 1)
        for one in known["use"]["domains"]:
            self.assertEqual(one["told"], one["usual"] * known["use"]["tokens"] >= known["use"]["told_from"] - 0.5)
        self.assertEqual([one["step"] for one in known["prices"]], [10, 20, 30])
        self.assertAlmostEqual(known["prices"][-1]["price"], known["price"], delta=1e-5)
        self.assertEqual(len(known["nearest"]), 5)
        cosines = [one["cosine"] for one in known["nearest"]]
        self.assertEqual(cosines, sorted(cosines, reverse=True))
        overview = self.server.json("/api/layers?run=base")
        self.assertEqual(overview["layers"][1]["loads"], layer["loads"])
        self.assertTrue(math.isclose(overview["layers"][1]["prices"][2], known["price"]))
        self.assertIsNone(self.server.json("/api/layers?run=base&step=10")["layers"][1]["loads"])

    def test_wrong_parameters_are_refused_with_a_reason(self):
        good = {"run": "base", "text": "a", "routing": "greedy"}
        for change, says in (({"run": "other"}, "no run"), ({"run": 3}, "run"), ({"step": 11}, "step 11"), ({"step": -1}, "step"), ({"text": None}, "text"),
                             ({"text": ""}, "no text"), ({"routing": "best"}, "best"), ({"run": "gates", "routing": "priced"}, "BASE")):
            self.assertIn(says, self.refused("POST", "/api/inspect", good | change))
        for body in ("", "[]", "{", "3", '{"run": "base", "run": "base"}', "[" * 5000):
            self.refused("POST", "/api/inspect", body)
        for query, says in (("", "run"), ("run=nobody&layer=0&expert=0", "nobody"), ("run=base&expert=0", "layer"), ("run=base&layer=0", "expert"),
                            ("run=base&layer=7&expert=0", "layer of experts 7"), ("run=base&layer=0&expert=6", "expert 6"),
                            ("run=base&layer=0&expert=-1", "whole number"), ("run=base&layer=0&expert=99999999999999999999", "whole number"),
                            ("run=base&layer=0&expert=0&step=x", "whole number"), ("run=dense&layer=0&expert=0", "layer of experts 0")):
            self.assertIn(says, self.refused("GET", "/api/expert?" + query))
        self.assertIn("nobody", self.refused("GET", "/api/layers?run=nobody"))
        self.assertIn("nobody", self.refused("GET", "/api/sample?run=nobody"))


if __name__ == "__main__":
    unittest.main()
