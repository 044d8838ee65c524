// SPDX-License-Identifier: Apache-2.0
// Elements and numbers. Text from outside only ever becomes a text node.

/** make('p', {class: 'less', onclick: f}, 'text', other): an element; children that are null are left out. */
export function make(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function makeSvg(name, attributes = {}, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on'))
      element.addEventListener(key.slice(2), value);
    else
      element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** 3 digits after the point, or fewer of large numbers; a dash where nothing is known. */
export function number(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  return value.toFixed(digits).replace(/^-(?=0(\.0+)?$)/, '').replace('-', '−');
}

export function count(value) {
  return Math.round(value).toLocaleString('en');
}

export function percent(share) {
  if (!Number.isFinite(share)) return '–';
  return share > 0 && share < 0.0005 ? '<0.1%' : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}%`;
}

/** Characters that cannot be seen become signs for them. */
export function visible(text) {
  const signs = {'\n': '↵', '\r': '␍', '\t': '⇥', '\u00a0': '⍽'};
  return text.replace(
      /[\u0000-\u001f\u007f\u00a0\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g,
      (character) => signs[character] ?? `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** A badge with an expert's number, in its colour. */
export function paint(element, expert) {
  // The golden angle puts the hues of neighbouring numbers far apart; three levels tell near hues apart.
  element.style.setProperty('--hue', ((expert * 137.508 + 230) % 360).toFixed(1));
  element.style.setProperty('--level', String(expert % 3));
  return element;
}
export function badge(expert) {
  return paint(make('span', {class: 'badge'}, String(expert)), expert);
}
