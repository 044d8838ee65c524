// SPDX-License-Identifier: Apache-2.0
// What is looked at, and how it stands in the address after the #, so that a view can be linked to.

export const SAMPLE = `Preheat the oven to 180 degrees. Mix two cups of flour with the butter and an egg.
def area(width, height):
    return width * height
"Where were you last night?" asked Anna. "At home," he said, and closed the door.
12 + 30 = 42. The rain will reach the coast by Thursday evening, with winds from the west.`;

export const COLOURS = ['expert', 'loss', 'cost'];
export const ROUTINGS = ['greedy', 'priced', 'balanced'];

/**
 * {text (null: the run's sample), sides: [{run, step, layer}], routings, colour, expert: {side, expert} or null};
 * step and layer may be null.
 */
export function readState() {
  const values = new URLSearchParams(location.hash.slice(1));
  const numberOf = (key) => (/^\d{1,15}$/.test(values.get(key) ?? '') ? Number(values.get(key)) : null);
  const side = (letter) => ({run: values.get(letter), step: numberOf(`s${letter}`), layer: numberOf(`l${letter}`)});
  const sides = [side('a')];
  if (values.get('b') !== null) sides.push(side('b'));
  const routings = (values.get('r') ?? '').split(',').filter((name) => ROUTINGS.includes(name));
  const open = (values.get('x') ?? '').match(/^([01])\.(\d{1,6})$/);
  return {
    text: values.get('t'),
    sides,
    routings: routings.length > 0 ? routings : null,
    colour: COLOURS.includes(values.get('c')) ? values.get('c') : 'expert',
    expert: open ? {side: Number(open[1]), expert: Number(open[2])} : null,
  };
}

export function writeState(state) {
  const values = new URLSearchParams();
  state.sides.forEach((side, index) => {
    const letter = 'ab'[index];
    values.set(letter, side.run);
    if (side.step !== null) values.set(`s${letter}`, side.step);
    if (side.layer !== null) values.set(`l${letter}`, side.layer);
  });
  values.set('r', state.routings.join(','));
  if (state.colour !== 'expert') values.set('c', state.colour);
  if (state.expert) values.set('x', `${state.expert.side}.${state.expert.expert}`);
  if (state.text !== state.sample) values.set('t', state.text);
  history.replaceState(null, '', `#${values}`);
}
