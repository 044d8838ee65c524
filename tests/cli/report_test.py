# SPDX-License-Identifier: Apache-2.0
"""Reports of real runs of every system, opened in a real browser: all figures, no errors, nothing from a network, good on a phone."""

import json
import os
import re
import shutil
import struct
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from headless_browser import Browser
from in_folder import InFolder, ballast
from made_up_experiment import SYSTEMS, make_experiment, make_run

# Two blocks of width 16 on bytes: a second or two a system. The validation split has 2,000 tokens of each domain.
SETTING = (
    "--model.width=16 --model.layers=2 --model.heads=2 --model.context=64 --training.batch=8 --training.steps=40 "
    "--training.validate_every=10 --training.validate_batches=4 --training.sample_tokens=20 --training.log_every=5 "
    "--training.last_validate_batches=0 --data.builtin_bytes=2_500_000 --optimizer.warmup_steps=5 --checkpoint.every=0"
).split()
EXPERTS = "--experts.count=4 --experts.groups=2 --experts.layers=1 --experts.sublayers=1".split()
RUNS = {
    "dense": [],
    "base": EXPERTS,
    "moe": [*EXPERTS, "--experts.router=sparsely_gated"],
    "switch": [*EXPERTS, "--experts.router=switch"],
}
ALWAYS = ["perplexity_time", "perplexity_tokens", "speed", "time_parts"]
OF_EXPERTS = ["expert_balance", "domains", "assignment"]
DESK, PHONE = 1280, 390
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(20, 24, 29)"
# The colours of a page's ground, of words, and of all that its drawings are painted with, each as [red, green, blue].
PAINTS = """(() => {
  const rgb = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const of = (selector, what) => [...document.querySelectorAll(selector)].filter(e => e.checkVisibility()).map(e => getComputedStyle(e)[what]);
  return {ground: getComputedStyle(document.body).backgroundColor, words: of('main p, td, th, dd', 'color').map(rgb),
          grounds: [...new Set(of('svg[role=img] > rect:first-of-type', 'fill'))], texts: of('svg.lines text', 'fill').map(rgb),
          lines: of('svg polyline', 'stroke').map(rgb)};
})()"""


def contrast(one, other):
    """Of two colours, from 1 to 21, as the web's guidelines for readers count it."""
    def light(colour):
        parts = [part / 255 / 12.92 if part / 255 <= 0.04045 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in colour]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    brighter, darker = sorted((light(one), light(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


class ReportCase(InFolder):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.__exit__)

    def report(self, *arguments):
        return json.loads(self.run_well("report", "--json", *arguments).stdout)

    def open(self, page, width=DESK, scheme="light"):
        return self.browser.open((self.folder / page).resolve().as_uri(), width, scheme=scheme)

    def assert_shows(self, page, figures):
        """The page has these figures and no others, complete, and nothing goes wrong in it or is cut off at either width, in light and dark."""
        for width, scheme in ((DESK, "light"), (PHONE, "dark")):
            shown = self.open(page, width, scheme)
            self.assertEqual(shown.evaluate("[...document.querySelectorAll('figure')].map(f => f.id).sort()"), sorted(f"figure-{name}" for name in figures))
            empty = "[...document.querySelectorAll('figure')].filter(f => !f.querySelector('svg[role=img] title') || f.querySelector('figcaption').textContent.length < 20)"
            self.assertEqual(shown.evaluate(f"{empty}.map(f => f.id)"), [])
            self.assertEqual(len(shown.requests), 1, shown.requests)
            hidden = "[...document.querySelectorAll('figure')].filter(f => !f.closest('details') && ![...f.querySelectorAll('svg')].some(s => s.getBoundingClientRect().width > 200))"
            self.assertEqual(shown.evaluate(f"{hidden}.map(f => f.id)"), [], f"at width {width}")
            shown.evaluate("(async () => { document.querySelectorAll('details').forEach(d => { d.open = true; }); await new Promise(done => setTimeout(done, 50)); })()")
            for now in (scheme, "dark" if scheme == "light" else "light"):
                shown.show_as(now)
                self.assertEqual(shown.cut_off(), [], f"at width {width}, {now}")
                self.assert_readable(shown, now)
            self.assertLessEqual(shown.evaluate("document.documentElement.scrollWidth"), width)
            self.assertEqual(shown.complaints, [])

    def assert_readable(self, shown, scheme):
        """Words and lines stand out from their ground, which is the page's everywhere."""
        paints = shown.evaluate(PAINTS)
        self.assertEqual([paints["ground"], *paints["grounds"]], 2 * [DARK if scheme == "dark" else LIGHT])
        ground = DARK if scheme == "dark" else LIGHT
        ground = [float(part) for part in re.findall(r"[\d.]+", ground)]
        for what, least in (("words", 4.5), ("texts", 4.5), ("lines", 2)):
            for colour in paints[what]:
                self.assertGreaterEqual(contrast(colour, ground), least, f"{what} of {colour}, {scheme}")

    def assert_files(self, written):
        for path in written["figures"]:
            content = (self.folder / path).read_bytes()
            if path.endswith(".svg"):
                root = ElementTree.fromstring(content)
                self.assertEqual(root.get("role"), "img")
                size = [float(root.get("width")), float(root.get("height"))]
            else:
                self.assertEqual(content[:8], b"\x89PNG\r\n\x1a\n")
                pixels = struct.unpack(">II", content[16:24])
                # Twice as large as the SVG before it; the program rounds to whole pixels.
                self.assertTrue(all(abs(2 * a - b) <= 1 for a, b in zip(size, pixels)), f"{path}: {size} {pixels}")


class RealRuns(ReportCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.runs = Path(tempfile.mkdtemp(prefix="ballast-report-"))
        cls.addClassCleanup(shutil.rmtree, cls.runs, ignore_errors=True)
        for name, knobs in RUNS.items():
            result = ballast("train", *SETTING, *knobs, "--run", cls.runs / name)
            assert result.returncode == 0, result.stderr

    def setUp(self):
        super().setUp()
        for name in RUNS:
            (self.folder / name).symlink_to(self.runs / name)

    def test_each_system_alone(self):
        for name in RUNS:
            with self.subTest(name):
                written = self.report(name, "--out", f"{name}-report")
                self.assertEqual(written["notes"], [])
                self.assert_shows(f"{name}-report/index.html", ALWAYS + (OF_EXPERTS if name != "dense" else []))
                self.assert_files(written)
                system = written["systems"][0]
                last = self.validation(name)
                # Validation.json and the last line of metrics.jsonl tell of the same validation.
                found = {system["routing"] or "greedy": system["perplexity"], "greedy": system["greedy_perplexity"]}
                told = {"greedy": last["valid_perplexity"]}
                if name == "base":  # validated with priced routing along the way
                    told = {"priced": last["valid_perplexity"], "greedy": last["other_routing"]["perplexity"]}
                    self.assertEqual(system["perplexity"], min(system["greedy_perplexity"], system["priced_perplexity"]))
                for routing, perplexity in found.items():
                    self.assertAlmostEqual(perplexity, told[routing], delta=1e-9 * perplexity)
                self.assertEqual(system["tokens"], 40 * 8 * 64)
                self.assertEqual(system["kind"], {"moe": "sparsely_gated"}.get(name, name))
                self.assertGreater(system["parameters"], 10_000)

    def test_all_side_by_side(self):
        written = self.report(*RUNS, "--out", "all")
        figures = [*ALWAYS, *OF_EXPERTS, "domains_2", "domains_3"]
        self.assert_shows("all/index.html", figures)
        self.assert_files(written)
        self.assertEqual([system["title"] for system in written["systems"]], ["dense", "BASE x1", "Sparsely Gated MoE x1", "Switch x1"])
        page = self.open("all/index.html")
        names = page.evaluate("[...document.querySelectorAll('#figure-expert_balance .wide .series')].map(s => s.dataset.name)")
        for line in ("BASE, training, as in the paper", "BASE x1, greedy", "BASE x1, priced", "Switch x1", "Sparsely Gated MoE x1, first expert",
                     "Sparsely Gated MoE x1, second expert", "paper: BASE, testing"):
            self.assertIn(line, names)

    def test_a_line_tells_its_values_to_those_who_point_at_it(self):
        self.report("base", "--out", "report")
        page = self.open("report/index.html")
        self.assertEqual(page.evaluate("document.querySelector('.tooltip').hidden"), True)
        # Scrolling hides what is shown, and is told of later: the pointer moves after that.
        spot = page.evaluate(
            "(async () => { const line = document.querySelector('#figure-perplexity_tokens .wide [data-name=validation] polyline');"
            " const scrolled = new Promise(done => window.addEventListener('scroll', done, {once: true}));"
            " line.scrollIntoView({block: 'center'}); await scrolled; const p = line.points.getItem(line.points.numberOfItems - 1);"
            " const at = new DOMPoint(p.x, p.y).matrixTransform(line.getScreenCTM()); return [at.x, at.y]; })()")
        page.hover(*spot)
        told = page.evaluate("document.querySelector('.tooltip').hidden ? '' : document.querySelector('.tooltip').innerText")
        self.assertIn("validation", told)
        self.assertIn("tokens trained on: 20,480", told)
        perplexity = float(re.search(r"perplexity.*: ([\d.]+)", told)[1])
        # The line is drawn to a hundredth of a pixel.
        self.assertAlmostEqual(perplexity, self.validation("base")["valid_perplexity"], delta=0.001 * perplexity)
        self.assertEqual(page.complaints, [])

    def test_without_scripts_nothing_is_missing(self):
        self.report("base", "--out", "report")
        path = self.folder / "report/index.html"
        path.write_text(re.sub(r"<script>.*?</script>", "", path.read_text(), flags=re.DOTALL))
        self.assert_shows("report/index.html", ALWAYS + OF_EXPERTS)

    def test_a_printed_page_is_light_and_has_no_hints(self):
        self.report(*RUNS, "--out", "report")
        page = self.open("report/index.html", PHONE, "dark")
        self.assertNotEqual(page.evaluate("[...document.querySelectorAll('.hint')].filter(h => h.checkVisibility()).length"), 0)
        page.show_as("dark", "print")
        self.assert_readable(page, "light")
        self.assertEqual(page.evaluate("[...document.querySelectorAll('.hint')].filter(h => h.checkVisibility()).length"), 0)
        figure = (self.folder / "report/figures/speed.svg").read_text()
        self.assertIn('fill="#fff"', figure)
        self.assertNotIn("var(", figure)

    def test_the_sentence_that_matters_stands_first(self):
        written = self.report("base", "switch", "--out", "report")
        first = self.open("report/index.html").evaluate("document.querySelector('#summary h2 + p').innerText")
        self.assertEqual(first, written["panels"][0]["verdict"])
        self.assertRegex(first, r"^(BASE|Switch) .*has the lowest perplexity, [\d.]+, [\d.]+ % below .*after 20.5k tokens each")
        self.assertEqual(written["title"], "base and switch")

    def test_a_page_has_the_runs_name_and_says_what_numbers_were_measured_on(self):
        written = self.report("base", "--out", "report")
        page = self.open("report/index.html")
        self.assertEqual(page.evaluate("document.title"), "base · BASE x1, 4 experts · Ballast report")
        self.assertEqual(page.evaluate("document.querySelector('h1').innerText"), "base")
        tokens = json.loads((self.runs / "base/validation.json").read_text())["tokens"]
        self.assertEqual(written["systems"][0]["validated_tokens"], tokens)
        self.assertRegex(page.evaluate("document.querySelector('#summary .lead').innerText"), r"measured on .*validation split")

    def test_training_and_validation_are_told_apart_without_colours(self):
        self.report("dense", "--out", "report")
        page = self.open("report/index.html")
        lines = page.evaluate("[...document.querySelectorAll('#figure-perplexity_time .wide .series')].map(s => [s.dataset.name, s.querySelector('polyline').getAttribute('stroke-dasharray'), s.querySelectorAll('circle').length])")
        self.assertEqual([[name, dashes] for name, dashes, _ in lines], [["training, smoothed", "2 2.5"], ["validation", None]])
        self.assertEqual([marks > 0 for _, _, marks in lines], [False, True])

    def test_the_default_place_is_in_the_run(self):
        written = self.report("dense")
        self.assertEqual(written["page"], "dense/report/index.html")
        self.assertTrue((self.folder / "dense/report/figures/speed.svg").exists())

    def test_a_run_of_an_earlier_program_says_what_it_lacks(self):
        shutil.copytree(self.runs / "base", self.folder / "old")
        (self.folder / "old/validation.json").unlink()
        metrics = self.folder / "old/metrics.jsonl"
        records = [json.loads(line) for line in metrics.read_text().splitlines()][:-12]
        metrics.write_text("".join(json.dumps({k: v for k, v in r.items() if k != "parts"}) + "\n" for r in records) + '{"step": 99, "lo')
        written = self.report("old")
        self.assertTrue(any("validation.json is missing" in note for note in written["notes"]))
        self.assertTrue(any("of 40, or still going on" in note for note in written["notes"]))
        page = self.open("old/report/index.html")
        self.assertIn("written before validation.json existed", page.evaluate("document.querySelector('#specialisation').innerText"))
        self.assertIn("written before steps recorded", page.evaluate("document.querySelector('section#speed').innerText"))
        self.assertEqual(page.complaints, [])

    def test_without_rsvg_convert_figures_are_svg_alone_and_a_warning_names_the_package(self):
        result = ballast("report", "base", "--out", "report", "--json", cwd=self.folder, env=os.environ | {"PATH": str(self.folder)})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr.count("warning:"), 1)
        self.assertIn("librsvg2-bin", result.stderr)
        self.assertTrue(all(path.endswith(".svg") for path in json.loads(result.stdout)["figures"]))


class Experiments(ReportCase):
    def test_panels_seeds_sweeps_and_what_is_not_trained_yet(self):
        make_experiment(self.folder / "made", counts=(8, 32))
        written = self.report("made")
        figures = [*ALWAYS, *OF_EXPERTS, "expert_balance_2"]
        # One open map, a folded one for each further system (4 and 3), and files of further layers of BASE x3.
        files = {Path(path).stem for path in written["figures"] if "domains" in path}
        self.assertEqual(files, {"domains", *(f"domains_{i}" for i in range(2, 12))})
        shown = re.findall(r'<figure id="figure-(domains_\d+)"', (self.folder / "made/report/index.html").read_text())
        self.assertEqual(len(shown), 6)
        self.assert_shows("made/report/index.html", figures + shown)
        self.assert_files(written)
        self.assertEqual([panel["title"] for panel in written["panels"]], ["8 experts", "32 experts"])
        self.assertEqual([panel["planned_cluster"] for panel in written["panels"]], ["8 x v100, infiniband", "32 x v100, infiniband"])
        self.assertEqual(written["panels"][1]["planned_tokens_per_second"]["dense-e32"], 9.5 * 60000)
        systems = {system["id"]: system for system in written["systems"]}
        self.assertEqual(len(systems), 2 * len(SYSTEMS))
        self.assertEqual(systems["base-x1-e8"]["seeds"], 3)
        self.assertGreater(systems["base-x1-e8"]["perplexity_spread"], 0)
        self.assertIsNone(systems["switch-e32"]["perplexity"])
        self.assertIn("switch-e32: swept so far, not trained", written["notes"])
        # The slowest system of a panel decides about equal tokens.
        slowest = min(system["tokens"] for system in written["systems"] if system["tokens"])
        self.assertEqual(written["panels"][0]["equal_tokens"], slowest)
        text = self.open("made/report/index.html").evaluate("document.body.innerText")
        for words in ("not trained yet", "3 seeds", "diverged", "32 x v100, infiniband, of every row", "with priced routing has the lowest",
                      "in equal training time (33.0s). That is beyond the noise between seeds (3 seeds and 1 seed)", "all 5560 assignments are optimal"):
            self.assertIn(words, text)
        self.assertNotIn("nan", text.lower().split())

    def test_other_folders_are_refused(self):
        (self.folder / "empty").mkdir()
        self.refused("report", "empty", says=["empty is neither a run nor an experiment", "run.json or experiment.json"])
        self.refused("report", "nowhere", says="nowhere is neither")
        self.refused("report", says="RUN_OR_EXPERIMENT")

    def test_a_browser_hears_what_goes_wrong(self):
        """Otherwise the other tests would say nothing."""
        make_run(self.folder / "run", "base")
        self.report("run")
        path = self.folder / "run/report/index.html"
        whole = path.read_text()
        broken = self.folder / "run/report/broken.html"
        faults = {
            "'use strict';": "'use strict'; no_such_function();",
            "</body>": "<script>console.log('a word')</script></body>",
            "<main>": '<main><img src="http://ballast.invalid/x.png" alt="">',
        }
        for place, fault in faults.items():
            self.assertIn(place, whole)
            broken.write_text(whole.replace(place, fault))
            self.assertNotEqual(self.open("run/report/broken.html").complaints, [], fault)
        broken.write_text(whole.replace("<main>", '<main><div class="too-wide">x</div>').replace("<style>", "<style>.too-wide { width: 900px; }"))
        self.assertIn("DIV too-wide x", self.open("run/report/broken.html", PHONE).cut_off())
        broken.write_text(whole.replace("box.previousElementSibling.hidden =", "box.no_hint ="))
        self.assertNotEqual(self.open("run/report/broken.html", PHONE).cut_off(), [])
        broken.write_text(whole.replace(">training time, seconds</text>", ">training time, seconds, and many more words than there is room for</text>"))
        self.assertNotEqual(self.open("run/report/broken.html", PHONE).cut_off(), [])
        broken.write_text(re.sub(r"svg\[fill=.#1f2328.\].*", "", whole))
        with self.assertRaises(AssertionError):
            self.assert_readable(self.open("run/report/broken.html", scheme="dark"), "dark")
        broken.write_text(re.sub(r'<figure id="figure-speed">.*?</figure>', "", whole, flags=re.DOTALL))
        with self.assertRaises(AssertionError):
            self.assert_shows("run/report/broken.html", ALWAYS + OF_EXPERTS)


if __name__ == "__main__":
    unittest.main()
