// SPDX-License-Identifier: Apache-2.0
// What is known of one expert: its load, its price over training, what it gets, and who is near.

import {badge, count, make, makeSvg, number, percent, visible} from '/dom.js';

const WIDTH = 320, HEIGHT = 130, LEFT = 44, RIGHT = 12, TOP = 10, BOTTOM = 26;

/** The price over the run's checkpoints; `step` is the one that is looked at. */
function priceChart(prices, step) {
  const [first, last] = [prices[0].step, prices.at(-1).step];
  const values = [...prices.map((one) => one.price), 0];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const span = high > low ? high - low : 1;
  const x = (at) => LEFT + (WIDTH - LEFT - RIGHT) * (last > first ? (at - first) / (last - first) : 0.5);
  const y = (price) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (price - low) / span);
  const grid = [...new Set([low, 0, high])].map(
      (price) =>
          [makeSvg(
               'line',
               {class: price === 0 ? 'axis' : 'grid', x1: LEFT, x2: WIDTH - RIGHT, y1: y(price), y2: y(price)}),
           price === 0 || Math.abs(y(price) - y(0)) > 12 ?
               makeSvg('text', {x: LEFT - 6, y: y(price) + 4, 'text-anchor': 'end'}, number(price, 2)) :
               null]);
  const here = prices.find((one) => one.step === step);
  return makeSvg(
      'svg', {
        class: 'chart',
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
        role: 'img',
        'aria-label': `Price over training: ${number(prices[0].price)} at step ${first}, ${
            number(prices.at(-1).price)} at step ${last}`
      },
      ...grid.flat().filter((part) => part !== null), makeSvg('polyline', {
        class: 'curve',
        points: prices.map((one) => `${x(one.step).toFixed(1)},${y(one.price).toFixed(1)}`).join(' ')
      }),
      ...prices.map(
          (one) => makeSvg(
              'circle', {class: 'mark', cx: x(one.step), cy: y(one.price), r: prices.length > 24 ? 1.5 : 2.5},
              makeSvg('title', {}, `step ${count(one.step)}: ${number(one.price)}`))),
      ...(here ? [makeSvg('circle', {class: 'here', cx: x(here.step), cy: y(here.price), r: 5})] : []),
      makeSvg(
          'text', {x: x(first), y: HEIGHT - 6, 'text-anchor': last > first ? 'start' : 'middle'},
          `step ${count(first)}`),
      ...(last > first ? [makeSvg('text', {x: x(last), y: HEIGHT - 6, 'text-anchor': 'end'}, count(last))] : []));
}

function section(title, ...parts) {
  return make('section', {}, make('h3', {}, title), ...parts);
}

function prices(known) {
  if (known.price === null) return section('Price', make('p', {class: 'less'}, 'This router has no prices.'));
  if (known.prices.length === 0) return null;
  return section(
      'Price over training', priceChart(known.prices, known.step),
      make(
          'p', {class: 'less'},
          'What balance asks of tokens that want this expert, in units of the score; below 0 it is a discount.'));
}

function tokenTable(tokens) {
  return make(
      'ul', {class: 'got'},
      tokens.map(
          (one) => make(
              'li', {}, make('code', {}, one.text),
              make('small', {class: 'number'}, ` ${count(one.count)} · ${number(one.lift, 1)} ×`))));
}

/** `toldFrom`: the tokens of a domain below which nothing is said of it. */
function domains(list, toldFrom) {
  const there = list.filter((one) => one.usual > 0).sort((one, other) => other.share - one.share).slice(0, 24);
  if (there.length === 0) return null;
  const known = there.filter((one) => one.told);
  const rare = there.filter((one) => !known.includes(one)).map((one) => one.name);
  const most = Math.max(...known.map((one) => Math.max(one.share, one.usual)));
  const bars = known.map((one) => {
    const bar = make(
        'span', {class: 'track', 'aria-hidden': 'true'}, make('span', {class: 'part'}), make('span', {class: 'usual'}));
    bar.style.setProperty('--part', (one.share / most).toFixed(3));
    bar.style.setProperty('--usual', (one.usual / most).toFixed(3));
    return make(
        'li', {}, make('span', {class: 'name'}, one.name), bar, make('span', {class: 'number'}, percent(one.share)));
  });
  const words = [
    bars.length > 0 ? 'Of its tokens; the stroke stands at what all tokens have.' : null,
    rare.length > 0 ? `Under ${count(toldFrom)} tokens, too few to tell: ${rare.join(', ')}.` : null
  ];
  return section(
      'Domains', make('ul', {class: 'domains'}, bars), make('p', {class: 'less'}, words.filter(Boolean).join(' ')));
}

function used(use) {
  const whole = use.whole_split ? 'the whole validation split' :
      use.of === 'sample'       ? 'windows spread over the validation split' :
                                  'a part of the validation split';
  return [
    section(
        'Tokens it gets', use.top_tokens.length > 0 ? tokenTable(use.top_tokens) : make('p', {}, 'None.'),
        make(
            'p', {class: 'less'},
            `How often, and how many times its usual share. Of ${count(use.tokens)} tokens: ${
                whole}, greedy routing.`)),
    use.previous.length > 0 ? section('Tokens before them', tokenTable(use.previous)) : null,
    domains(use.domains, use.told_from)
  ];
}

function contexts({state, trouble, windows, wanted, list}) {
  if (state === 'missing') return section('In context', make('p', {class: 'note'}, `No examples: ${trouble}`));
  if (state === 'reading')
    return section(
        'In context',
        make('p', {class: 'status busy'}, `Reading the validation set: ${windows} of ${wanted} windows`));
  if (list.length === 0)
    return section(
        'In context', make('p', {class: 'less'}, `It got no token of ${wanted} windows of the validation set.`));
  return section(
      'In context',
      make(
          'ul', {class: 'contexts'},
          list.map(
              (one) => make(
                  'li', {}, one.domain ? make('span', {class: 'domain'}, one.domain) : null,
                  make(
                      'span', {class: 'passage'}, visible(one.before), make('mark', {}, visible(one.token)),
                      visible(one.after))))),
      make('p', {class: 'less'}, `From ${wanted} windows spread over the validation set, greedy routing.`));
}

function tiles(known) {
  const {use, price, loads} = known;
  const facts = [];
  if (use) facts.push(['fair shares, greedy', `${number(use.load / use.fair, 2)} ×`]);
  for (const routing of ['priced', 'balanced'])
    if (use && routing in loads)
      facts.push([`fair shares, ${routing}`, `${number(loads[routing] / use.fair, 2)} ×`]);
  if (price !== null) facts.push(['average price', number(price)]);
  return make(
      'dl', {class: 'tiles'},
      facts.map(([name, value]) => make('div', {}, make('dt', {}, name), make('dd', {}, value))));
}

/** `known` is what /api/expert tells. */
export function showExpert(place, known, {open, close}) {
  place.classList.remove('busy');
  place.replaceChildren(
      ...[make(
              'div', {class: 'head'},
              make('h2', {tabindex: -1}, badge(known.expert), ` Expert ${known.expert} of ${known.name}`),
              make(
                  'button',
                  {type: 'button', class: 'button bare', onclick: close, 'aria-label': 'Close the expert'},
                  'Close')),
          make('p', {class: 'less'}, `${known.run}, step ${count(known.step)}`),
          tiles(known),
          prices(known),
          ...(known.use ? used(known.use) : []),
          contexts(known.contexts),
          section(
              'Nearest by embedding',
              make(
                  'ul', {class: 'near'},
                  known.nearest.map(
                      (one) => make(
                          'li', {},
                          make(
                              'button', {
                                type: 'button',
                                class: 'link',
                                'aria-label': `Open expert ${one.expert}`,
                                onclick: () => open(one.expert)
                              },
                              badge(one.expert)),
                          make('small', {class: 'number'}, ` cosine ${number(one.cosine, 2)}`))))),
  ].filter((part) => part !== null));
}

export function showExpertTrouble(place, message, close) {
  place.classList.remove('busy');
  place.replaceChildren(
      make('p', {class: 'error'}, message),
      make('button', {type: 'button', class: 'button', onclick: close}, 'Close'));
}
