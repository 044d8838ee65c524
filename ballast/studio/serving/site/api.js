// SPDX-License-Identifier: Apache-2.0
// What the page asks the server. A refusal becomes an Error whose message is the server's own words.

async function answer(response) {
  let body = null;
  try {
    body = await response.json();
  } catch {
    throw new Error(`The server answered ${response.status} with something that is no JSON.`);
  }
  if (response.ok) return body;
  throw new Error(body?.error?.message ?? `The server answered ${response.status}.`);
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, {cache: 'no-store', ...options});
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Error('The server does not answer. Is `ballast serve` still running?');
  }
  return answer(response);
}

function query(values) {
  const known = Object.entries(values).filter(([, value]) => value !== null && value !== undefined);
  return new URLSearchParams(known).toString();
}

export const runs = () => ask('/api/runs');
export const layers = (run, step, signal) => ask(`/api/layers?${query({run, step})}`, {signal});
export const sample = (run) => ask(`/api/sample?${query({run})}`);
export const expert = (where, signal) => ask(`/api/expert?${query(where)}`, {signal});
export const inspect = (what, signal) =>
    ask('/api/inspect',
        {method: 'POST', signal, headers: {'content-type': 'application/json'}, body: JSON.stringify(what)});
