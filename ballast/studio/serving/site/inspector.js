// SPDX-License-Identifier: Apache-2.0
// The inspector: a text through one run or two, in one way of routing or several.

import {showExpert, showExpertTrouble} from '/about_expert.js';
import {showNoToken, showToken} from '/about_token.js';
import * as api from '/api.js';
import {count, make} from '/dom.js';
import {expertButtons, summary, TokenList} from '/token_list.js';
import {COLOURS, readState, ROUTINGS, SAMPLE, writeState} from '/view_state.js';

const byId = (id) => document.getElementById(id);
const place = {
  text: byId('text'),
  status: byId('status'),
  error: byId('error'),
  views: byId('views'),
  token: byId('about-token'),
  expert: byId('about-expert')
};
const BESIDE = matchMedia('(min-width: 901px)');  // as inspector.css has it: the cards stand beside the text
const COLOUR_WORDS = {
  expert: 'expert',
  loss: 'loss',
  cost: 'cost of the choice'
};

let runs = [], state = null;
let blocks =
    [];  // of each side: {side, run, element, layers, views: [{routing, name, element, found, layer, list}]}
let asking = null;  // AbortController of what the expert's panel asks for; a block has its own
let chosen = {view: null, token: 0};

const runOf = (side) => runs.find((run) => run.name === side.run);
const layersOf = (run) => run.expert_layers ?? [];
const allViews = () => blocks.flatMap((block) => block.views);
const say = (words) => {
  place.status.textContent = words;
};
const complain = (words) => {
  place.error.textContent = words ?? '';
  place.error.hidden = !words;
};

/** Makes the state one that can be shown: runs, steps, layers and ways of routing that exist. */
function settle(wanted) {
  wanted.sides = wanted.sides.filter((side, index) => index === 0 || runOf(side));
  if (!runOf(wanted.sides[0])) wanted.sides[0] = {run: runs[0].name, step: null, layer: null};
  for (const side of wanted.sides) {
    const run = runOf(side);
    if (!run.steps.includes(side.step)) side.step = null;
    if (!layersOf(run).includes(side.layer)) side.layer = layersOf(run)[0] ?? null;
  }
  const known = ROUTINGS.filter((name) => wanted.sides.some((side) => (runOf(side).routings ?? []).includes(name)));
  const asked =
      (wanted.routings ?? [runOf(wanted.sides[0]).routing ?? 'greedy']).filter((name) => known.includes(name));
  wanted.routings = asked.length > 0 ? asked : known.slice(0, 1).concat(known.length ? [] : ['greedy']);
  if (wanted.expert && !wanted.sides[wanted.expert.side]) wanted.expert = null;
  return wanted;
}

function showControls() {
  const options = (selected) =>
      runs.map((run) => make('option', {value: run.name, selected: run.name === selected}, run.name));
  byId('run-a').replaceChildren(...options(state.sides[0].run));
  byId('run-b').replaceChildren(
      make('option', {value: '', selected: state.sides.length < 2}, 'no other run'),
      ...options(state.sides[1]?.run));
  byId('routings').replaceChildren(...ROUTINGS.map((name) => {
    const can = state.sides.some((side) => (runOf(side).routings ?? []).includes(name));
    return make(
        'label', {class: can ? null : 'off'}, make('input', {
          type: 'checkbox',
          name: 'routing',
          value: name,
          checked: can && state.routings.includes(name),
          disabled: !can,
          onchange: changeRoutings
        }),
        name);
  }));
  byId('colours').replaceChildren(...COLOURS.map(
      (name) => make(
          'label', {}, make('input', {
            type: 'radio',
            name: 'colour',
            value: name,
            checked: state.colour === name,
            onchange: () => changeColour(name)
          }),
          COLOUR_WORDS[name])));
}

function changeRoutings() {
  const wanted = [...document.querySelectorAll('input[name="routing"]:checked')].map((input) => input.value);
  if (wanted.length > 0)
    state.routings = wanted;
  else
    showControls();  // the last one stays
  look();
}
function changeColour(name) {
  state.colour = name;
  writeState(state);
  for (const view of allViews()) view.list?.paint(name);
}
async function changeRun(index, name) {
  if (name === '')
    state.sides.length = 1;
  else
    state.sides[index] = {run: name, step: null, layer: state.sides[index]?.layer ?? null};
  state = settle(state);
  closeExpert();
  showControls();
  if (index === 0) await takeSample(place.text.value === state.sample);
  look();
}

/** The head of a run's views: its name, the slider over its checkpoints, its layer. */
function heading(block) {
  const {side, run} = block;
  const steps = run.steps;
  const at = side.step === null ? steps.length - 1 : steps.indexOf(side.step);
  const told = make(
      'strong', {},
      steps.length > 0 ? `step ${count(steps[at])}` :
          run.is_run ? 'no checkpoint yet' :
                       'its weights');
  block.told = told;
  const slide = (event) => {
    side.step = steps[Number(event.target.value)];
    told.textContent = `step ${count(side.step)}`;
    event.target.setAttribute('aria-valuetext', told.textContent);
    lookSoon(block);
  };
  const slider = steps.length > 1 ?
      make('label', {class: 'field slider'}, make('span', {}, 'Checkpoint: ', told), make('input', {
             type: 'range',
             min: 0,
             max: steps.length - 1,
             step: 1,
             value: at,
             'aria-valuetext': told.textContent,
             oninput: slide
           })) :
      make('p', {class: 'less'}, told);
  const layer = layersOf(run).length > 0 ?
      make(
          'label', {class: 'field'}, make('span', {}, 'Layer of experts'),
          make(
              'select', {onchange: (event) => changeLayer(block, Number(event.target.value))},
              layersOf(run).map(
                  (number) =>
                      make('option', {value: number, selected: number === side.layer}, `layer ${number}`)))) :
      null;
  return make(
      'div', {class: 'run-head'}, make('h2', {}, run.name, ' ', make('small', {}, run.system)),
      make('div', {class: 'row'}, slider, layer));
}

function changeLayer(block, layer) {
  block.side.layer = layer;
  closeExpert();
  for (const view of block.views)
    if (view.found) show(view);
}

function build() {
  const several = state.routings.length > 1;
  blocks = state.sides.map((side, number) => {
    const run = runOf(side);
    const block = {side, run, number, layers: null, views: []};
    const ways = state.routings.filter((name) => (run.routings ?? []).includes(name));
    block.views = (ways.length > 0 ? ways : [
                    'greedy'
                  ]).map((routing) => ({
                           block,
                           routing,
                           found: null,
                           list: null,
                           name: [state.sides.length > 1 ? run.name : null, ways.length > 0 ? routing : 'dense']
                                     .filter(Boolean)
                                     .join(', '),
                           element: make(
                               'section', {class: 'view busy', 'aria-label': `${run.name}, ${routing}`},
                               make('p', {class: 'status'}, 'Looking …'))
                         }));
    block.element = make(
        'section', {class: 'card run', 'aria-label': `Run ${run.name}`}, heading(block),
        make('div', {class: 'panes'}, block.views.map((view) => view.element)));
    return block;
  });
  place.views.classList.toggle('abreast', !several && blocks.length > 1);
  place.views.replaceChildren(...blocks.map((block) => block.element));
}

function show(view) {
  const {block, found} = view;
  const layer = found.layers.find((one) => one.layer === block.side.layer) ?? null;
  view.layer = layer;
  // A run that trains may have a newer checkpoint than when the page was opened.
  if (block.run.steps.length > 0) block.told.textContent = `step ${count(found.step)}`;
  const validated = block.layers?.find((one) => one.layer === block.side.layer)?.loads ?? null;
  view.list = new TokenList(found, layer, {
    colour: state.colour,
    label: `Tokens, ${view.name}`,
    onmove: (token) => move(view, token),
    onopen: (token) => layer && openExpert(block, layer.layer, layer.expert[token])
  });
  const title = layer ? `${view.routing} routing` : 'a dense model: losses alone';
  view.element.classList.remove('busy');
  view.element.replaceChildren(
      ...[make('h3', {}, title), summary(found, layer),
          layer ? expertButtons(layer, validated, (expert) => openExpert(block, layer.layer, expert)) : null,
          view.list.element]
          .filter((part) => part !== null));
  if (chosen.view === view) move(view, Math.min(chosen.token, found.tokens.text.length - 1));
  writeState(state);
}

function move(view, token) {
  chosen = {view, token};
  for (const other of allViews()) {
    if (other === view)
      other.list?.mark(token);
    else if (other.found?.tokens.text.length === view.found.tokens.text.length)
      other.list?.mark(token);
  }
  showToken(place.token, view, allViews(), token, (layer, expert) => openExpert(view.block, layer.layer, expert));
}

async function lookAt(view, signal) {
  const {side, run} = view.block;
  view.element.classList.add('busy');
  try {
    view.found =
        await api.inspect({run: run.name, step: side.step, text: state.text, routing: view.routing}, signal);
    show(view);
    return true;
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    view.element.classList.remove('busy');
    view.element.replaceChildren(make('p', {class: 'error'}, error.message));
    return false;
  }
}

async function lookAtBlock(block) {
  block.looking?.abort();
  block.looking = new AbortController();
  const {signal} = block.looking;
  try {
    block.layers = (await api.layers(block.run.name, block.side.step, signal)).layers;
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    block.layers = null;  // the views say why
  }
  return Promise.all(block.views.map((view) => lookAt(view, signal)));
}

async function lookAtBlocks(some) {
  writeState(state);
  complain(null);
  say('Looking …');
  try {
    const fine = (await Promise.all(some.map(lookAtBlock))).flat();
    say(fine.every(Boolean) ? '' : 'Not everything could be shown.');
    const first = allViews().find((view) => view.found);
    if (first && !(chosen.view && allViews().includes(chosen.view) && chosen.view.found)) move(first, 0);
  } catch (error) {
    if (error.name !== 'AbortError') complain(error.message);
  }
}

function look() {
  state.text = place.text.value;
  for (const block of blocks) {
    block.looking?.abort();
    clearTimeout(block.waiting);
  }
  build();
  chosen = {view: null, token: 0};
  return lookAtBlocks(blocks);
}

function lookSoon(block) {
  clearTimeout(block.waiting);
  block.waiting = setTimeout(async () => {
    await lookAtBlocks([block]);
    if (state.expert?.side === block.number)
      openExpert(block, block.side.layer, state.expert.expert, {quietly: true});
  }, 120);
}

async function openExpert(block, layer, expert, {quietly = false} = {}) {
  asking?.abort();
  asking = new AbortController();
  const {signal} = asking;
  const cameFrom = document.activeElement;
  if (block.side.layer !== layer) {
    block.side.layer = layer;
    block.element.querySelector('select').value = layer;
    for (const view of block.views)
      if (view.found) show(view);
  }
  state.expert = {side: block.number, expert};
  writeState(state);
  if (place.expert.hidden) place.expert.returnTo = cameFrom;
  place.expert.hidden = false;
  place.expert.classList.add('busy');
  const where = {run: block.run.name, step: block.side.step, layer, expert};
  try {
    for (let first = true;; first = false) {
      const known = await api.expert(where, signal);
      const within = place.expert.contains(document.activeElement);
      showExpert(place.expert, known, {open: (other) => openExpert(block, layer, other), close: closeExpert});
      if ((first && !quietly) || (within && !place.expert.contains(document.activeElement))) turnToExpert();
      if (known.contexts.state !== 'reading') return;
      await new Promise((done) => setTimeout(done, 300));
      if (signal.aborted) return;
    }
  } catch (error) {
    if (error.name !== 'AbortError') showExpertTrouble(place.expert, error.message, closeExpert);
  }
}

function turnToExpert() {
  place.expert.querySelector('h2').focus({preventScroll: true});
  if (BESIDE.matches)
    place.expert.parentElement.scrollTop = place.expert.offsetTop - place.token.offsetTop;
  else
    place.expert.scrollIntoView({block: 'start'});
}

function closeExpert() {
  asking?.abort();
  if (place.expert.hidden) return;
  const within = place.expert.contains(document.activeElement);
  place.expert.hidden = true;
  state.expert = null;
  writeState(state);
  if (!within) return;
  const back = place.expert.returnTo;
  if (back?.isConnected)
    back.focus();
  else
    allViews().find((view) => view.list)?.list.items[0].focus();
}

/** Asks for a text that the first run's model may know; where its data is gone there is one of ours. */
async function takeSample(show) {
  try {
    state.sample = (await api.sample(state.sides[0].run)).text || SAMPLE;
  } catch {
    state.sample = SAMPLE;
  }
  if (show) place.text.value = state.sample;
}

async function start() {
  try {
    runs = (await api.runs()).runs;
  } catch (error) {
    say('');
    complain(error.message);
    return;
  }
  if (runs.length === 0) {
    say('There is no run to look at.');
    return;
  }
  state = settle(readState());
  showNoToken(place.token);
  showControls();
  place.text.value = state.text ?? '';
  await takeSample(state.text === null);
  const open = state.expert;
  await look();
  if (open && blocks[open.side]?.views.some((view) => view.found))
    openExpert(blocks[open.side], blocks[open.side].side.layer, open.expert, {quietly: true});
}

byId('ask').addEventListener('submit', (event) => {
  event.preventDefault();
  if (state) look();
});
place.text.addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) byId('ask').requestSubmit();
});
byId('run-a').addEventListener('change', (event) => changeRun(0, event.target.value));
byId('run-b').addEventListener('change', (event) => changeRun(1, event.target.value));
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') closeExpert();
});
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();  // the hash holds the state
  place.views.focus();
});
window.addEventListener('hashchange', start);
start();
