// SPDX-License-Identifier: Apache-2.0
// What is known of one token: how it was routed in each layer, and what the other views made of it.

import {badge, count, make, number, percent, visible} from '/dom.js';
import {costOf} from '/token_list.js';

function priced(layer, expert, score) {
  if (!layer.prices) return number(score);
  const price = layer.prices[expert];
  return `${number(score)} ${price < 0 ? '+' : '−'} ${number(Math.abs(price))} = ${number(score - price)}`;
}

function row(name, ...value) {
  return make('div', {class: 'fact'}, make('dt', {}, ...[name].flat()), make('dd', {class: 'number'}, ...value));
}

function expertLink(expert, open) {
  return make(
      'button', {type: 'button', class: 'link', 'aria-label': `Open expert ${expert}`, onclick: () => open(expert)},
      badge(expert));
}

function table(head, rows) {
  return make(
      'div', {class: 'scroll'},
      make(
          'table', {},
          make(
              'thead', {},
              make(
                  'tr', {},
                  head.map(
                      (name, i) => make(
                          'th', {
                            scope: 'col',
                            class: i > 0 && typeof rows[0].cells[i - 1] === 'string' ? 'number' : null
                          },
                          name)))),
          make(
              'tbody', {},
              rows.map(
                  ({name, here, cells}) => make(
                      'tr', {class: here ? 'here' : null}, make('th', {scope: 'row'}, name),
                      cells.map(
                          (cell) => make('td', {class: typeof cell === 'string' ? 'number' : null}, cell)))))));
}

function ofLayers(view, token, open) {
  const {layers} = view.found;
  return table(
      ['layer', 'expert', 'second', 'gate', 'cost'],
      layers.map((layer) => ({
                   name: layer.name,
                   here: layers.length > 1 && layer === view.layer,
                   cells: [
                     expertLink(layer.expert[token], (expert) => open(layer, expert)),
                     layer.second[token] < 0 ? make('span', {}, '–') :
                                               expertLink(layer.second[token], (expert) => open(layer, expert)),
                     number(layer.gate[token], 2), number(costOf(layer, token))
                   ]
                 })));
}

/** How the scores stood that decided, in the layer that is shown. */
function scores(layer, token) {
  const [expert, second, best] = [layer.expert[token], layer.second[token], layer.best[token]];
  return make(
      'div', {}, make('h3', {}, `${layer.name}: ${layer.prices ? 'score less price' : 'scores'}`),
      make(
          'dl', {class: 'facts'}, row(['its expert ', badge(expert)], priced(layer, expert, layer.score[token])),
          second >= 0 ? row(['second choice ', badge(second)], priced(layer, second, layer.second_score[token])) :
                        null,
          best === expert || best === second ?
              null :
              row(['best by score ', badge(best)], priced(layer, best, layer.best_score[token]))));
}

function sameToken(view, other, token) {
  return view === other ||
      (view.found.tokens.text.length === other.found.tokens.text.length &&
       view.found.tokens.id[token] === other.found.tokens.id[token] &&
       view.found.tokens.text[token] === other.found.tokens.text[token]);
}

function comparison(view, views, token) {
  const alike = views.filter((other) => other.found && sameToken(view, other, token));
  if (alike.length < 2) return null;
  return make(
      'div', {}, make('h3', {}, 'The same token in all views'),
      table(
          ['', 'expert', 'gate', 'cost', 'loss'],
          alike.map(
              (other) => ({
                name: other.name,
                here: other === view,
                cells: [
                  other.layer ? badge(other.layer.expert[token]) : make('span', {}, '–'),
                  other.layer ? number(other.layer.gate[token], 2) : '–',
                  other.layer ? number(costOf(other.layer, token)) : '–', number(other.found.tokens.loss[token], 2)
                ]
              }))));
}

function chance(loss) {
  return Math.exp(-loss) < 0.0005 ? 'p < 0.1%' : `p = ${percent(Math.exp(-loss))}`;
}

/** `view`: {name, found, layer}; `open(layer, expert)` shows an expert. */
export function showToken(place, view, views, token, open) {
  const {found} = view;
  const loss = found.tokens.loss[token];
  place.replaceChildren(
      make('h2', {}, make('code', {class: 'chosen'}, visible(found.tokens.text[token]).replaceAll(' ', '␣'))),
      make(
          'p', {class: 'less'},
          `Token ${count(token + 1)} of ${count(found.tokens.text.length)}, number ${
              found.tokens.id[token]} of the vocabulary; ${view.name}`),
      make('dl', {class: 'facts'}, row('loss', `${number(loss, 3)} nats, ${chance(loss)}`)),
      ...[found.layers.length > 0 ? ofLayers(view, token, open) : null, comparison(view, views, token),
          view.layer ? scores(view.layer, token) : null]
          .filter((part) => part !== null));
}

export function showNoToken(place) {
  place.replaceChildren(
      make('h2', {}, 'A token'),
      make(
          'p', {class: 'less'},
          'Point at a token, tap it, or walk along with the arrow keys: here stands what the experts do with it.'));
}
