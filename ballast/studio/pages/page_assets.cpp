// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/pages/page.h"

namespace ballast::pages {

const char* const kPageStyle = R"css(
:root { color-scheme: light; --page: #fff; --ink: #1f2328; --muted: #59636e; --line: #d9dee3; --soft: #f6f8fa;
  --link: #0060a0; --shade: rgba(31,35,40,.24); --mark: #e69f00; }
@media screen and (prefers-color-scheme: dark) {
  :root { color-scheme: dark; --page: #14181d; --ink: #e4e8ec; --muted: #9da7b3; --line: #343c45; --soft: #1f252c;
    --link: #6cb6ff; --shade: rgba(220,230,240,.3); }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.55; font-size: 16px;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, "DejaVu Sans", sans-serif; }
header, main, footer { max-width: 1100px; margin: 0 auto; padding: 0 20px; }
header { padding-top: 40px; }
.kind { margin: 0; color: var(--muted); font-size: 14px; }
h1 { margin: 0 0 4px; font-size: 30px; line-height: 1.2; letter-spacing: -0.01em; overflow-wrap: anywhere; }
.what { margin: 0 0 16px; color: var(--muted); font-size: 17px; overflow-wrap: anywhere; }
.lead { font-size: 18px; line-height: 1.5; overflow-wrap: anywhere; }
h2 { margin: 0 0 12px; font-size: 21px; line-height: 1.3; }
h3 { margin: 28px 0 8px; font-size: 16px; line-height: 1.35; }
p { margin: 0 0 12px; max-width: 72ch; }
nav { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 14px; padding-bottom: 20px;
  border-bottom: 1px solid var(--line); }
a { color: var(--link); text-decoration: none; }
a:hover, a:focus { text-decoration: underline; }
section { padding: 36px 0 4px; scroll-margin-top: 8px; }
figure { margin: 16px 0 28px; }
figure svg { display: block; width: 100%; height: auto; max-width: 860px; }
figure .panels svg { max-width: none; }
figure .scroll svg { min-width: 640px; }
figcaption { margin-top: 10px; max-width: 78ch; font-size: 15px; }
.narrow { display: none; }
.panels { display: grid; gap: 20px 24px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 290px), 1fr)); }
.tiles { display: grid; gap: 20px 24px; margin: 8px 0 20px; padding: 0;
  grid-template-columns: repeat(auto-fill, minmax(132px, 1fr)); }
.tiles div { display: flex; flex-direction: column-reverse; justify-content: flex-end; }
.tiles dt { color: var(--muted); font-size: 13px; line-height: 1.3; }
.tiles dd { margin: 0; font-size: 22px; line-height: 1.25; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; margin: 12px 0 20px; background:
  linear-gradient(to right, var(--page) 50%, transparent) left / 36px 100% no-repeat local,
  linear-gradient(to left, var(--page) 50%, transparent) right / 36px 100% no-repeat local,
  linear-gradient(to right, var(--shade), transparent) left / 14px 100% no-repeat scroll,
  linear-gradient(to left, var(--shade), transparent) right / 14px 100% no-repeat scroll; }
.hint { margin: 12px 0 -8px; color: var(--muted); font-size: 13px; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 14px 6px 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { color: var(--muted); font-weight: 500; font-size: 13px; vertical-align: bottom; line-height: 1.3; }
th.number, td.number { text-align: right; padding: 6px 0 6px 12px; }
td.number { white-space: nowrap; }
th.number { min-width: 8ch; }
td:first-child { min-width: 9ch; }
td:first-child:has(+ .number) { min-width: 19ch; }
td:has(.token) { min-width: 230px; }
small, .less { color: var(--muted); font-size: 0.86em; }
.token { display: inline-block; margin: 0 8px 3px 0; white-space: nowrap; }
.token code { background: var(--soft); border-radius: 3px; padding: 1px 4px; }

code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 13px; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--soft); padding: 12px 14px; border-radius: 4px;
  line-height: 1.45; }
td code { overflow-wrap: anywhere; }
.note { color: var(--muted); border-left: 3px solid var(--mark); padding-left: 12px; font-size: 15px; overflow-wrap: anywhere; }
.facts { color: var(--muted); font-size: 14px; overflow-wrap: anywhere; }
details { margin: 8px 0 12px; }
summary { cursor: pointer; color: var(--link); padding: 4px 0; overflow-wrap: anywhere; }
footer { margin-top: 40px; padding-top: 16px; padding-bottom: 40px; color: var(--muted); font-size: 13px; }
.tooltip { position: absolute; z-index: 1; pointer-events: none; background: var(--page); color: var(--ink);
  border: 1px solid var(--line); border-radius: 4px; box-shadow: 0 2px 8px rgba(31,35,40,.14);
  padding: 6px 10px; font-size: 13px; line-height: 1.4; max-width: 260px; font-variant-numeric: tabular-nums; }
.tooltip b { display: block; font-weight: 600; }
@media screen and (max-width: 640px) {
  header, main, footer { padding-left: 16px; padding-right: 16px; }
  header { padding-top: 24px; }
  h1 { font-size: 25px; }
  .lead { font-size: 17px; }
  td:first-child:has(+ .number) { min-width: 13ch; }
  .wide { display: none; }
  .narrow { display: block; }
}
@media print {
  body { font-size: 10.5pt; }
  header, main, footer { max-width: none; padding-left: 0; padding-right: 0; }
  nav, .tooltip, .hint, .bulk { display: none; }
  section { padding: 14pt 0 0; }
  figure, tr, h2, h3, .tiles { break-inside: avoid; }
  h2, h3, thead, summary { break-after: avoid; }
  .scroll { overflow: visible; background: none; }
  table { font-size: 8.5pt; }
  th, td, th.number, td.number { padding: 3pt 8pt 3pt 0; }
  details::details-content { content-visibility: visible; display: block; height: auto; }
  summary { color: var(--ink); list-style: none; }
  a { color: var(--ink); }
}
@page { margin: 16mm; }
)css";

const char* const kPageScript = R"js(
(function () {
  'use strict';
  var tip = document.createElement('div');
  tip.className = 'tooltip';
  tip.hidden = true;
  document.body.appendChild(tip);
  var dot = document.createElementNS('http://www.w3.org/2000/svg', 'circle');
  dot.setAttribute('r', '5');
  dot.setAttribute('fill', 'none');
  dot.setAttribute('stroke', '#1f2328');
  dot.setAttribute('stroke-width', '1.5');
  dot.setAttribute('pointer-events', 'none');

  function hide() {
    tip.hidden = true;
    if (dot.parentNode) dot.parentNode.removeChild(dot);
  }
  function show(event, title, lines) {
    tip.textContent = '';
    var head = document.createElement('b');
    head.textContent = title;
    tip.appendChild(head);
    lines.forEach(function (line) {
      var row = document.createElement('div');
      row.textContent = line;
      tip.appendChild(row);
    });
    tip.hidden = false;
    var room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = Math.max(8, Math.min(event.pageX + 14, room)) + 'px';
    tip.style.top = event.pageY + 16 + 'px';
  }
  function scale(words) {
    var p = words.split(' ');
    return function (at) {
      var part = (at - p[0]) / (p[1] - p[0]), low = +p[2], high = +p[3];
      return p[4] === 'log' ? low * Math.pow(high / low, part) : low + part * (high - low);
    };
  }
  function number(value) {
    return Math.abs(value) >= 1e4 ? Math.round(value).toLocaleString('en') : String(+value.toPrecision(4));
  }
  function nearest(svg, x, y) {
    var best = null;
    svg.querySelectorAll('.series').forEach(function (series) {
      if (!series.dataset.name) return;
      series.querySelectorAll('polyline').forEach(function (line) {
        for (var i = 0; i < line.points.numberOfItems; ++i) {
          var p = line.points.getItem(i), far = Math.hypot(p.x - x, p.y - y);
          if (far < 40 && (!best || far < best.far)) best = { far: far, x: p.x, y: p.y, name: series.dataset.name };
        }
      });
    });
    return best;
  }
  function over(event) {
    var part = event.target.closest ? event.target.closest('svg.chart .tip') : null;
    if (part) return show(event, part.querySelector('title').textContent, []);
    var svg = event.target.closest ? event.target.closest('svg.lines') : null;
    if (!svg) return hide();
    var at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    var found = nearest(svg, at.x, at.y);
    if (!found) return hide();
    var labels = svg.dataset.labels.split('|');
    dot.setAttribute('cx', found.x);
    dot.setAttribute('cy', found.y);
    svg.appendChild(dot);
    show(event, found.name, [labels[0] + ': ' + number(scale(svg.dataset.x)(found.x)),
      labels[1] + ': ' + number(scale(svg.dataset.y)(found.y))]);
  }
  document.addEventListener('pointermove', over);
  document.addEventListener('pointerdown', over);
  window.addEventListener('scroll', hide, { passive: true });

  function hints() {
    document.querySelectorAll('.scroll').forEach(function (box) {
      box.previousElementSibling.hidden = box.scrollWidth <= box.clientWidth + 1;
    });
  }
  hints();
  window.addEventListener('resize', hints);
  document.addEventListener('toggle', hints, true);

  var closed = [];
  window.addEventListener('beforeprint', function () {
    closed = Array.prototype.slice.call(document.querySelectorAll('details:not([open])'));
    closed.forEach(function (one) { one.open = true; });
  });
  window.addEventListener('afterprint', function () {
    closed.forEach(function (one) { one.open = false; });
  });
})();
)js";

}  // namespace ballast::pages
