// SPDX-License-Identifier: Apache-2.0
// A text as tokens, each coloured by its expert, its loss or what its choice cost.

import {badge, count, make, number, paint, percent, visible} from '/dom.js';

/** What choosing this expert gave up: the best score less that of the one it got. */
export function costOf(layer, token) {
  return Math.max(0, layer.best_score[token] - layer.score[token]);
}

export function wordsOf(found, layer, token) {
  const parts = [`token “${visible(found.tokens.text[token])}”`];
  if (layer) {
    parts.push(`expert ${layer.expert[token]}`, `gate ${number(layer.gate[token], 2)}`);
    if (layer.second[token] >= 0) parts.push(`second choice ${layer.second[token]}`);
    parts.push(`cost ${number(costOf(layer, token))}`);
  }
  parts.push(`loss ${number(found.tokens.loss[token], 2)}`);
  return parts.join(', ');
}

function told(found, layer, token, colour) {
  if (colour === 'loss' || !layer) return number(found.tokens.loss[token], 1);
  return colour === 'cost' ? number(costOf(layer, token), 2) : String(layer.expert[token]);
}

function heatOf(found, layer, token, colour, most) {
  const value = colour === 'cost' && layer ? costOf(layer, token) : found.tokens.loss[token];
  return most > 0 && Number.isFinite(value) ? Math.min(1, Math.max(0, value / most)) : 0;
}

/**
 * A listbox of tokens that calls `onmove(token)` where one is pointed at or reached, and `onopen(token)` for its
 * expert.
 */
export class TokenList {
  constructor(found, layer, {colour, label, onmove, onopen}) {
    this.found = found;
    this.layer = layer;
    this.onmove = onmove;
    this.current = 0;
    this.items = found.tokens.text.map((text, token) => this.item(text, token));
    this.element = make('div', {
      class: 'tokens',
      role: 'listbox',
      'aria-label': label,
      onkeydown: (event) => this.key(event, onopen),
      onpointerover: (event) => this.reached(event.target, false),
      onclick: (event) => this.reached(event.target, true),
      ondblclick: () => onopen(this.current),
      onfocusin: (event) => this.reached(event.target, false),
    });
    this.items.forEach((item, token) => {
      this.element.append(item);
      if (found.tokens.text[token].includes('\n')) this.element.append(make('br'));
    });
    this.items[0].tabIndex = 0;
    this.paint(colour);
  }

  item(text, token) {
    return make(
        'span', {
          class: 'token',
          role: 'option',
          tabindex: -1,
          'data-token': token,
          'aria-selected': 'false',
          'aria-label': wordsOf(this.found, this.layer, token)
        },
        make('span', {class: 'text'}, visible(text)), make('span', {class: 'told'}));
  }

  paint(colour) {
    const {found, layer} = this;
    const kind = layer ? colour : 'loss';
    const costs = layer ? found.tokens.loss.map((_, token) => costOf(layer, token)) : [];
    const most = kind === 'cost' ? Math.max(1e-9, ...costs) : 8;  // nats that are a surprise whatever the model
    this.element.dataset.colour = kind;
    this.items.forEach((item, token) => {
      item.lastChild.textContent = told(found, layer, token, kind);
      if (kind === 'expert')
        paint(item, layer.expert[token]);
      else
        item.style.setProperty('--part', heatOf(found, layer, token, kind, most).toFixed(3));
    });
  }

  reached(target, focus) {
    const item = target.closest?.('.token');
    if (item) this.choose(Number(item.dataset.token), focus);
  }

  /** Marks a token, without telling anyone. */
  mark(token) {
    if (!(token in this.items)) return;
    const [before, now] = [this.items[this.current], this.items[token]];
    before.tabIndex = -1;
    before.setAttribute('aria-selected', 'false');
    now.tabIndex = 0;
    now.setAttribute('aria-selected', 'true');
    this.current = token;
  }

  choose(token, focus) {
    const isNew = this.items[token].getAttribute('aria-selected') !== 'true';
    this.mark(token);
    if (focus && document.activeElement !== this.items[token]) this.items[token].focus();
    if (isNew || focus) this.onmove(token);
  }

  key(event, onopen) {
    const last = this.items.length - 1, here = this.current;
    const targets = {ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: last};
    let target = targets[event.key];
    if (event.key === 'ArrowUp') target = this.besides(-1);
    if (event.key === 'ArrowDown') target = this.besides(1);
    if (event.key === 'Enter' || event.key === ' ')
      onopen(here);
    else if (target === undefined)
      return;
    else
      this.choose(Math.min(last, Math.max(0, target)), true);
    event.preventDefault();
  }

  /** The token above or below the current one. */
  besides(direction) {
    const from = this.items[this.current];
    const middle = (item) => item.offsetLeft + item.offsetWidth / 2;
    let best = this.current, line = null;
    for (let i = this.current + direction; i in this.items; i += direction) {
      const item = this.items[i];
      if (Math.abs(item.offsetTop - from.offsetTop) < 4) continue;
      line ??= item.offsetTop;
      if (Math.abs(item.offsetTop - line) >= 4) break;
      if (best === this.current ||
          Math.abs(middle(item) - middle(from)) < Math.abs(middle(this.items[best]) - middle(from)))
        best = i;
    }
    return best;
  }
}

/** What a pane says of the whole text. */
export function summary(found, layer) {
  const losses = found.tokens.loss.filter(Number.isFinite);
  const mean = losses.reduce((sum, loss) => sum + loss, 0) / losses.length;
  const tiles = [['tokens', count(found.tokens.text.length)], ['mean loss', number(mean, 2)]];
  if (layer) {
    const tokens = layer.expert.length;
    const toBest = layer.expert.filter((expert, token) => expert === layer.best[token]).length;
    const busiest = Math.max(...loadsOf(layer)) * layer.experts / tokens;
    tiles.push(['to best expert', percent(toBest / tokens)], ['busiest expert', `${number(busiest, 1)} ×`]);
  }
  return make(
      'dl', {class: 'tiles'},
      tiles.map(([name, value]) => make('div', {}, make('dt', {}, name), make('dd', {}, value))));
}

export function loadsOf(layer) {
  const loads = new Array(layer.experts).fill(0);
  for (const expert of layer.expert) loads[expert] += 1;
  return loads;
}

/** A button for each expert with its load in the text, and in the validation where that is known. */
export function expertButtons(layer, validated, onopen) {
  const loads = loadsOf(layer);
  const most = Math.max(1, ...loads);
  const all = validated ? validated.reduce((sum, load) => sum + load, 0) : 0;
  const buttons = loads.map((load, expert) => {
    const bar = make('span', {class: 'bar'});
    bar.style.setProperty('--part', (load / most).toFixed(3));
    const usual =
        all > 0 ? `, ${number(validated[expert] * loads.length / all, 2)} fair shares of the validation` : '';
    const price = layer.prices ? `, price ${number(layer.prices[expert])}` : '';
    const words = `expert ${expert}: ${count(load)} tokens of this text${usual}${price}`;
    return paint(
        make(
            'button', {
              type: 'button',
              class: 'expert',
              'data-expert': expert,
              'aria-label': words,
              title: words,
              onclick: () => onopen(expert)
            },
            badge(expert), make('span', {class: 'load number'}, count(load)), bar),
        expert);
  });
  return make(
      'div', {class: 'experts', role: 'group', 'aria-label': 'Experts, with their tokens of this text'}, buttons);
}
