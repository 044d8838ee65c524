// SPDX-License-Identifier: Apache-2.0
// A chart that is drawn anew as numbers come: a line of many noisy points with a smooth one through
// it, and one of few points with marks. Pointing at it, or arrow keys on it, read it out.

import { count } from "./live_words.js";

const SVG = "http://www.w3.org/2000/svg";
const SPACE = { left: 52, right: 14, top: 10, bottom: 26 };

export function svgElement(name, attributes, parent) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (parent) parent.append(element);
  return element;
}

// Round numbers from low to high, about `wanted` of them.
export function ticks(low, high, wanted) {
  if (!(high > low)) return [low];
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough) * power;
  const values = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) values.push(i * step);
  return values;
}

function quantile(values, part) {
  const sorted = Float64Array.from(values).sort();
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))] : NaN;
}

// Points of a line, those without a number left out; at most two for each pixel, the lowest and the
// highest there.
function condensed(xs, ys, width) {
  const known = [];
  for (let i = 0; i < xs.length; ++i) if (Number.isFinite(ys[i])) known.push([xs[i], ys[i]]);
  if (known.length <= 2 * width) return known;
  const kept = [], size = known.length / width;
  for (let i = 0; i < width; ++i) {
    const bucket = known.slice(Math.floor(i * size), Math.floor((i + 1) * size));
    let low = bucket[0], high = bucket[0];
    for (const point of bucket) {
      if (point[1] < low[1]) low = point;
      if (point[1] > high[1]) high = point;
    }
    kept.push(...(low[0] <= high[0] ? [low, high] : [high, low]));
  }
  return kept;
}

// Means over a window around each of about 200 places. The window is even at the steep start and keeps
// its length at the noisy end.
function smoothed(xs, ys) {
  const known = [];
  for (let i = 0; i < xs.length; ++i) if (Number.isFinite(ys[i])) known.push([xs[i], ys[i]]);
  const reach = Math.max(1, Math.round(known.length / 40)), places = Math.min(200, known.length);
  const result = [];
  for (let place = 0; place < places; ++place) {
    const middle = places > 1 ? Math.round((place * (known.length - 1)) / (places - 1)) : 0;
    const half = Math.min(reach, middle);
    const window = known.slice(middle - half, middle + half + 1);
    result.push([known[middle][0], window.reduce((sum, point) => sum + point[1], 0) / window.length]);
  }
  return result;
}

// `options`: element (a figure), name, many and few ({name, format(value)} or null), range(many, few),
// which gives [low, high], axis(value), its words there, and level ({value, name}), a line of its own,
// or null.
export class LiveChart {
  constructor(options) {
    Object.assign(this, options);
    this.data = { many: { x: [], y: [] }, few: { x: [], y: [] } };
    this.cursor = null; // a step that is read out; null: the newest
    this.legend = document.createElement("ul");
    this.legend.className = "legend";
    this.outputs = {};
    if (this.many) this.addToLegend("many", "smooth", false);
    if (this.few) this.addToLegend("few", "second", true);
    this.svg = svgElement("svg", { class: "chart live", role: "img", tabindex: "0" });
    this.element.append(this.legend, this.svg);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.moveTo(null));
    this.svg.addEventListener("blur", () => this.moveTo(null));
    this.svg.addEventListener("keydown", (event) => this.pressed(event));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  addToLegend(key, line, dotted) {
    const item = document.createElement("li");
    const sample = svgElement("svg", { viewBox: "0 0 26 12", "aria-hidden": "true" });
    svgElement("path", { class: line, d: "M1 6H25" }, sample);
    if (dotted) svgElement("circle", { class: "dot", cx: 13, cy: 6, r: 3.5 }, sample);
    const name = document.createElement("span");
    name.textContent = this[key].name;
    this.outputs[key] = document.createElement("output");
    item.append(sample, name, this.outputs[key]);
    this.legend.append(item);
  }

  show(many, few) {
    this.data = { many, few };
    this.draw();
  }

  // Where steps and values stand on the drawing.
  scales(width, height) {
    const { many, few } = this.data;
    const first = Math.min(many.x[0] ?? Infinity, few.x[0] ?? Infinity);
    const last = Math.max(many.x.at(-1) ?? -Infinity, few.x.at(-1) ?? -Infinity);
    const [low, high] = this.range(many, few);
    if (!Number.isFinite(first) || !(high > low)) return null;
    const across = Math.max(1, last - first);
    return {
      first, last, low, high,
      x: (step) => SPACE.left + ((step - first) / across) * (width - SPACE.left - SPACE.right),
      y: (value) => height - SPACE.bottom - ((value - low) / (high - low)) * (height - SPACE.top - SPACE.bottom),
      stepAt: (x) => first + ((x - SPACE.left) / Math.max(1, width - SPACE.left - SPACE.right)) * across,
    };
  }

  draw() {
    const width = Math.round(this.svg.clientWidth), height = Math.round(this.svg.clientHeight);
    if (width < 80 || height < 80) return;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren();
    this.scale = this.scales(width, height);
    if (this.scale === null) {
      const text = svgElement("text", { class: "empty", x: width / 2, y: height / 2, "text-anchor": "middle" }, this.svg);
      text.textContent = "no numbers yet";
    } else {
      this.drawAxes(width, height);
      this.drawLines(width, height);
    }
    this.readOut();
  }

  drawAxes(width, height) {
    const { low, high, first, last, x, y } = this.scale;
    for (const value of ticks(low, high, height < 220 ? 4 : 5)) {
      svgElement("line", { class: "grid", x1: SPACE.left, x2: width - SPACE.right, y1: y(value), y2: y(value) }, this.svg);
      const text = svgElement("text", { x: SPACE.left - 8, y: y(value) + 4, "text-anchor": "end" }, this.svg);
      text.textContent = this.axis(value);
    }
    for (const step of ticks(first, last, Math.max(2, Math.floor(width / 110)))) {
      if (!Number.isInteger(step)) continue;
      const text = svgElement("text", { x: x(step), y: height - 8, "text-anchor": x(step) > width - 40 ? "end" : "middle" }, this.svg);
      text.textContent = count(step);
    }
    svgElement("line", { class: "axis", x1: SPACE.left, x2: width - SPACE.right, y1: height - SPACE.bottom, y2: height - SPACE.bottom }, this.svg);
    if (this.level === null) return;
    const at = y(this.level.value);
    svgElement("line", { class: "level", x1: SPACE.left, x2: width - SPACE.right, y1: at, y2: at }, this.svg);
    svgElement("text", { x: width - SPACE.right, y: at + 14, "text-anchor": "end" }, this.svg).textContent = this.level.name;
  }

  drawLines(width, height) {
    const { x, y } = this.scale, { many, few } = this.data;
    const clip = `${this.element.id}-clip`;
    const box = svgElement("clipPath", { id: clip }, this.svg);
    svgElement("rect", { x: SPACE.left - 6, y: SPACE.top - 6, width: width - SPACE.left - SPACE.right + 12, height: height - SPACE.top - SPACE.bottom + 8 }, box);
    const inside = svgElement("g", { "clip-path": `url(#${clip})` }, this.svg);
    const path = (points) => "M" + points.map(([step, value]) => `${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join("L");
    const line = (name, points) => points.length > 1 && svgElement("path", { class: name, d: path(points) }, inside);
    line(many.x.length > width ? "raw dense" : "raw", condensed(many.x, many.y, width));
    line("smooth", smoothed(many.x, many.y));
    const marks = condensed(few.x, few.y, width);
    line("second", marks);
    const radius = marks.length > 60 ? 2 : 3.5;
    for (const [step, value] of marks) svgElement("circle", { class: "dot", cx: x(step).toFixed(1), cy: y(value).toFixed(1), r: radius }, inside);
    this.cursorLine = svgElement("line", { class: "cursor", y1: SPACE.top, y2: height - SPACE.bottom, visibility: "hidden" }, this.svg);
  }

  // The place of the newest point at or before the cursor that has a number.
  placeOf({ x, y }) {
    let place = x.length - 1;
    while (place >= 0 && (!Number.isFinite(y[place]) || (this.cursor !== null && x[place] > this.cursor))) --place;
    return place;
  }

  readOut() {
    const words = [];
    for (const key of ["many", "few"]) {
      if (!this[key]) continue;
      const data = this.data[key], place = this.placeOf(data);
      const value = place < 0 ? "" : `${this[key].format(data.y[place])} at step ${data.x[place]}`;
      this.outputs[key].textContent = this.cursor === null && place >= 0 ? this[key].format(data.y[place]) : value;
      if (value) words.push(`${this[key].name} ${value}`);
    }
    this.svg.setAttribute("aria-label", `${this.name}: ${words.join(", ") || "no numbers yet"}. Arrow keys read out other steps.`);
    if (!this.cursorLine || !this.scale) return;
    this.cursorLine.setAttribute("visibility", this.cursor === null ? "hidden" : "visible");
    if (this.cursor === null) return;
    const at = this.scale.x(Math.min(this.scale.last, Math.max(this.scale.first, this.cursor)));
    this.cursorLine.setAttribute("x1", at);
    this.cursorLine.setAttribute("x2", at);
  }

  moveTo(step) {
    this.cursor = step;
    this.readOut();
  }

  point(event) {
    if (!this.scale) return;
    this.moveTo(Math.round(this.scale.stepAt(event.clientX - this.svg.getBoundingClientRect().left)));
  }

  pressed(event) {
    if (!this.scale) return;
    const { first, last } = this.scale, now = this.cursor ?? last;
    const by = Math.max(1, Math.round((last - first) / 50));
    const to = { ArrowLeft: now - by, ArrowRight: now + by, Home: first, End: last, Escape: null }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.moveTo(to === null ? null : Math.min(last, Math.max(first, to)));
  }
}

// Of noisy numbers that start at 0: to a little above nearly all of them.
export function fromZero(many, few) {
  const values = [...many.y, ...few.y].filter(Number.isFinite);
  return [0, 1.15 * quantile(values, 0.98)];
}

// Of losses: from where it gets interesting. The steep fall of the first steps is cut off.
export function ofLosses(many, few) {
  const last = Math.max(many.x.at(-1) ?? 0, few.x.at(-1) ?? 0);
  const late = ({ x, y }) => y.filter((value, i) => Number.isFinite(value) && x[i] >= 0.04 * last);
  const values = [...late(many), ...late(few)];
  if (!values.length) return [NaN, NaN];
  const low = quantile(values, 0), high = quantile(values, 0.995);
  const margin = 0.06 * Math.max(high - low, 1e-3 * Math.abs(high), 1e-6);
  return [Math.max(low - margin, low > 0 ? 0 : -Infinity), high + margin];
}

// Of loads in fair shares: from just below 1.
export function ofShares(many, few) {
  const values = [...many.y, ...few.y].filter(Number.isFinite);
  return values.length ? [Math.min(0.85, ...values), Math.max(1.5, 1.1 * Math.max(...values))] : [NaN, NaN];
}
