// SPDX-License-Identifier: Apache-2.0
// Numbers as people write them.

// 1234567: "1.23M", 0.25: "0.25".
export function count(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  for (const [factor, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= factor) return short(value / factor) + letter;
  }
  return short(value);
}

function short(value) {
  if (Math.abs(value) >= 1e3) return value.toFixed(0);
  return String(Number(value.toPrecision(3)));
}

export function fixed(value, digits) {
  return Number.isFinite(value) ? value.toFixed(digits) : "–";
}

// "12s", "4m 05s", "3h 20m", "2d 4h".
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const whole = Math.round(seconds), two = (value) => String(value).padStart(2, "0");
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h ${two(Math.floor((whole % 3600) / 60))}m`;
  return `${Math.floor(whole / 86400)}d ${Math.floor((whole % 86400) / 3600)}h`;
}

// "0.8 ms", "1.2 s".
export function shortTime(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  return seconds < 1 ? `${Number((1e3 * seconds).toPrecision(3))} ms` : `${Number(seconds.toPrecision(3))} s`;
}
