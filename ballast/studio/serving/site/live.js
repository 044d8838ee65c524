// SPDX-License-Identifier: Apache-2.0
// The live view of a run: asks the server for what is new, and shows it. It never sends anything but
// what it knows already.

import { LiveChart, fromZero, ofLosses, ofShares } from "./live_chart.js";
import { count, duration, fixed, shortTime } from "./live_words.js";

const EVERY = 1000, WHEN_ENDED = 4000, WHEN_HIDDEN = 15000, WHEN_GONE = 2000, LIST_EVERY = 5000; // milliseconds
const PATIENCE = 20000;
const MOST_POINTS = 20000;
const COLUMNS = ["step", "loss", "tokens_per_second", "assign_seconds", "greedy_share", "dropped_share"];
const STATES = { waiting: "waiting for a trainer", starting: "starting", training: "training", stopped: "stopped", ended: "ended" };

const part = (id) => document.getElementById(id);
const known = { life: 0, from: 0, validations: 0, samples: 0 };
let points = emptyColumns(), validations = { step: [] }, samplesShown = "", over = false;
let run = new URLSearchParams(location.search).get("run");

function emptyColumns() {
  return Object.fromEntries(COLUMNS.map((name) => [name, []]));
}

const toLoss = (value) => fixed(value, 3), toShares = (value) => `${fixed(value, 2)} × its share`;
const charts = {
  loss: new LiveChart({
    element: part("loss-chart"), name: "Loss", range: ofLosses, axis: count, level: null,
    many: { name: "training", format: toLoss }, few: { name: "validation", format: toLoss },
  }),
  speed: new LiveChart({
    element: part("speed-chart"), name: "Speed", range: fromZero, axis: count, level: null,
    many: { name: "tokens/s", format: count }, few: null,
  }),
  balance: new LiveChart({
    element: part("balance-chart"), name: "Balance", range: ofShares, axis: count, level: { value: 1, name: "fair share" },
    many: null, few: { name: "busiest expert", format: toShares },
  }),
  assignment: new LiveChart({
    element: part("assignment-chart"), name: "Assignment", range: fromZero, axis: shortTime, level: null,
    many: { name: "time of a step", format: shortTime }, few: null,
  }),
};

async function ask(query) {
  const response = await fetch(`/api/live${query}`, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error?.message ?? `status ${response.status}`);
  return answer;
}

function tell(trouble) {
  const place = part("trouble");
  if (place.textContent !== trouble) place.textContent = trouble;
  place.hidden = trouble === "";
}

function setText(id, text) {
  const place = part(id);
  if (place.textContent !== text) place.textContent = text;
}

function showState(state, words) {
  part("state").dataset.state = state;
  setText("state", words);
}

function wordsOf(news) {
  if (news.state === "training" && news.steps !== null && news.step >= news.steps) return "training: last validation";
  if (news.state === "training" && news.silent_seconds > Math.max(15, 10 * (news.step_seconds ?? 0)))
    return `training: no step for ${duration(news.silent_seconds)}`;
  return STATES[news.state] ?? news.state;
}

// Columns stay below a bound: of old points every second one goes.
function addPoints(columns) {
  for (const name of COLUMNS) for (const value of columns[name]) points[name].push(value ?? NaN);
  while (points.step.length > MOST_POINTS) {
    const keep = points.step.length - MOST_POINTS / 4;
    for (const name of COLUMNS) points[name] = points[name].filter((_, i) => i >= keep || i % 2 === 0);
  }
}

function take(news) {
  if (news.anew) points = emptyColumns();
  addPoints(news.points);
  if (news.validations) {
    validations = news.validations;
    for (const name of Object.keys(validations)) validations[name] = validations[name].map((value) => value ?? NaN);
  }
  if (news.samples) showSamples(news.samples);
  Object.assign(known, { life: news.life, from: news.end, validations: news.validations_seen, samples: news.samples_seen });
  return news.anew || news.points.step.length > 0 || Boolean(news.validations);
}

function showNow(news) {
  const state = wordsOf(news);
  showState(news.state, state);
  setText("name", run);
  setText("about", [news.system, news.tokens > 0 ? `${count(news.tokens)} tokens in ${duration(news.seconds)} of training` : ""].filter(Boolean).join(" · "));
  setText("step", String(news.step));
  setText("step-of", news.steps === null ? "steps done" : `of ${news.steps} steps`);
  part("progress").hidden = news.steps === null;
  if (news.steps !== null) part("progress").value = news.step / news.steps;
  setText("loss", fixed(points.loss.at(-1) ?? NaN, 4));
  const last = validations.step.length - 1;
  setText("perplexity", last < 0 ? "–" : fixed(validations.perplexity[last], 2));
  setText("perplexity-of", last < 0 ? "validation perplexity" : `validation perplexity at step ${validations.step[last]}, of ${count(validations.tokens[last])} tokens`);
  setText("speed", count(recent(points.tokens_per_second)));
  over = news.state === "ended" || news.state === "stopped";
  setText("left-of", over ? "time trained" : "time left, about");
  setText("left", duration((over ? news.seconds : news.seconds_left) ?? NaN));
  setText("checkpoint", news.checkpoint === null ? "none yet" : `step ${news.checkpoint}`);
  const done = news.steps ? ` ${Math.floor((100 * news.step) / news.steps)} %` : "";
  document.title = `${state}${done} · ${run} · Ballast`;
}

// The mean over the newest points.
function recent(values) {
  const newest = values.slice(-20).filter(Number.isFinite);
  return newest.length ? newest.reduce((sum, value) => sum + value, 0) / newest.length : NaN;
}

function showCharts() {
  const of = (name) => ({ x: points.step, y: points[name] });
  const none = { x: [], y: [] };
  const isKnown = (name) => points[name].some(Number.isFinite);
  const hasExperts = isKnown("assign_seconds");
  const ofValidation = (name) => ({ x: validations.step, y: validations[name] ?? [] });
  part("balance-chart").hidden = !hasExperts;
  part("assignment-chart").hidden = !hasExperts;
  charts.loss.show(of("loss"), ofValidation("loss"));
  charts.speed.show(of("tokens_per_second"), none);
  if (!hasExperts) return;
  const allSteps = { x: [points.step[0], points.step.at(-1)], y: [NaN, NaN] }; // as wide as the other charts
  charts.balance.show(allSteps, ofValidation("busiest_share"));
  charts.assignment.show(of("assign_seconds"), none);
  const balanced = isKnown("greedy_share");
  setText("assignment-name", balanced ? "Assignment" : "Gates");
  setText("assignment-words", balanced
    ? `Time that affinities and assignment take of a step, over all layers. ${fixed(100 * recent(points.greedy_share), 0)} % of the tokens now go to their best expert.`
    : "Time that gates take of a step, over all layers.");
  setText("balance-words", balanced
    ? "In training each expert gets exactly its share."
    : `In training ${fixed(100 * recent(points.dropped_share), 1)} % of the choices now find no place.`);
}

function showSamples(samples) {
  const shown = JSON.stringify(samples);
  if (shown === samplesShown) return;
  samplesShown = shown;
  part("no-samples").hidden = samples.length > 0;
  part("samples").replaceChildren(...samples.reverse().map((sample) => {
    const article = document.createElement("article");
    const heading = document.createElement("h3"), text = document.createElement("pre");
    heading.textContent = `Step ${sample.step}`;
    text.textContent = sample.text;
    text.tabIndex = 0; // long ones scroll
    article.append(heading, text);
    return article;
  }));
}

function showRuns(runs) {
  part("runs").hidden = runs.length < 2;
  const list = part("runs").querySelector("ul");
  while (list.children.length > runs.length) list.lastChild.remove();
  runs.forEach((entry, i) => {
    if (!list.children[i]) {
      const item = document.createElement("li"), link = document.createElement("a");
      link.append(document.createElement("span"), document.createElement("small"));
      item.append(link);
      list.append(item);
    }
    const link = list.children[i].firstChild, address = `/live?run=${encodeURIComponent(entry.name)}`;
    if (link.getAttribute("href") !== address) link.href = address;
    if (entry.name === run) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
    link.firstChild.textContent = entry.name;
    link.lastChild.textContent = `${STATES[entry.state] ?? entry.state}, step ${entry.step}${entry.steps ? ` of ${entry.steps}` : ""}`;
  });
}

// Asks for the list where there may be several runs. Returns whether there is one to watch.
let listed = -Infinity, several = true;
async function look() {
  if (run !== null && (!several || performance.now() - listed < LIST_EVERY)) return true;
  const { runs } = await ask("");
  listed = performance.now();
  several = runs.length > 1;
  if (run === null && runs.length) run = (runs.find((entry) => entry.state === "training") ?? runs[0]).name;
  showRuns(runs);
  if (run === null) showState("waiting", "there is no run to watch here");
  return run !== null;
}

let shownOnce = false;
async function update() {
  if (!(await look())) return WHEN_ENDED;
  const news = await ask(`?${new URLSearchParams({ run, ...known })}`);
  const isNew = take(news);
  showNow(news);
  if (isNew || !shownOnce) showCharts();
  shownOnce = true;
  tell("");
  if (news.behind) return 50;
  return over ? WHEN_ENDED : EVERY;
}

let timer = 0, asking = false;
async function turn() {
  clearTimeout(timer);
  if (asking) return;
  asking = true;
  let wait = WHEN_GONE;
  try {
    wait = await update();
  } catch (error) {
    if (over) {
      tell("The run is over, and the server has ended with it. `ballast serve` shows the run again.");
    } else {
      showState("gone", "no answer");
      tell(`The server does not answer (${error.message}). The page goes on when it does; the training does not depend on it.`);
    }
    listed = -Infinity;
  }
  asking = false;
  timer = setTimeout(turn, document.hidden ? Math.max(wait, WHEN_HIDDEN) : wait);
}

document.addEventListener("visibilitychange", () => document.hidden || turn());
turn();
