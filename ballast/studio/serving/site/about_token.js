// SPDX-License-Identifier: Apache-2.0
// What is known of one token: how it was routed in each layer, and what the other views made of it.

import { badge, count, make, number, percent, visible } from '/dom.js';
import { costOf } from '/token_list.js';

function priced(layer, expert, score) {
  if (!layer.prices) return number(score);
  const price = layer.prices[expert];
  return `${number(score)} − ${number(price).replace(/^-(.*)$/, '($&)')} = ${number(score - price)}`;
}

function row(name, ...value) {
  return make('div', { class: 'fact' }, make('dt', {}, name), make('dd', { class: 'number' }, ...value));
}

function expertLink(expert, open) {
  return make('button', { type: 'button', class: 'link', 'aria-label': `Open expert ${expert}`, onclick: () => open(expert) }, badge(expert));
}

function ofLayer(layer, token, open) {
  const [expert, second, best] = [layer.expert[token], layer.second[token], layer.best[token]];
  const less = layer.prices ? 'score − price' : 'score';
  return make('div', { class: 'of-layer' }, make('h3', {}, layer.name), make('dl', { class: 'facts' },
    row('expert', expertLink(expert, open), ` gate ${number(layer.gate[token], 2)}`),
    second >= 0 ? row('second choice', expertLink(second, open)) : null,
    row(less, priced(layer, expert, layer.score[token])),
    second >= 0 ? row('of the second', priced(layer, second, layer.second_score[token])) : null,
    best === expert ? null : row('best by score', expertLink(best, open), ` ${priced(layer, best, layer.best_score[token])}`),
    row('cost of the choice', number(costOf(layer, token)))));
}

function sameToken(view, other, token) {
  return view === other || (view.found.tokens.text.length === other.found.tokens.text.length &&
    view.found.tokens.id[token] === other.found.tokens.id[token] && view.found.tokens.text[token] === other.found.tokens.text[token]);
}

function comparison(view, views, token) {
  const alike = views.filter((other) => other.found && sameToken(view, other, token));
  if (alike.length < 2) return null;
  const head = ['', 'expert', 'gate', 'cost', 'loss'];
  return make('div', {}, make('h3', {}, 'The same token in all views'), make('div', { class: 'scroll' }, make('table', {},
    make('thead', {}, make('tr', {}, head.map((name, i) => make('th', { scope: 'col', class: i > 1 ? 'number' : null }, name)))),
    make('tbody', {}, alike.map((other) => make('tr', { class: other === view ? 'here' : null },
      make('th', { scope: 'row' }, other.name),
      make('td', {}, other.layer ? badge(other.layer.expert[token]) : '–'),
      make('td', { class: 'number' }, other.layer ? number(other.layer.gate[token], 2) : '–'),
      make('td', { class: 'number' }, other.layer ? number(costOf(other.layer, token)) : '–'),
      make('td', { class: 'number' }, number(other.found.tokens.loss[token], 2))))))));
}

/** `view`: {name, found, layer}; `open(layer, expert)` shows an expert. */
export function showToken(place, view, views, token, open) {
  const { found } = view;
  const loss = found.tokens.loss[token];
  place.replaceChildren(
    make('h2', {}, make('code', { class: 'chosen' }, visible(found.tokens.text[token]))),
    make('p', { class: 'less' }, `Token ${count(token + 1)} of ${count(found.tokens.text.length)}, number ${found.tokens.id[token]} of the vocabulary. ${view.name}.`),
    make('dl', { class: 'facts' }, row('loss', `${number(loss, 3)} nats, p = ${percent(Math.exp(-loss))}`)),
    ...found.layers.map((layer) => ofLayer(layer, token, (expert) => open(layer, expert))),
    ...[comparison(view, views, token)].filter((part) => part !== null));
}

export function showNoToken(place) {
  place.replaceChildren(make('h2', {}, 'A token'), make('p', { class: 'less' },
    'Point at a token, tap it, or walk along with the arrow keys: here stands what the experts do with it.'));
}
