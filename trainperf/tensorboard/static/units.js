// How SI numbers are said on an axis. Sentences come from the server, which has its own words.

const TIMES = [[0.9995e-3, 1e6, "µs"], [0.9995, 1e3, "ms"], [599.5, 1, "s"], [Infinity, 1 / 60, "min"]];
const BYTES = [[2 ** 20, 2 ** -10, "KiB"], [2 ** 30, 2 ** -20, "MiB"], [Infinity, 2 ** -30, "GiB"]];

// One unit for all numbers that are read together, the one in which the largest has a few digits.
export function scaleOf(unit, largest) {
  if (unit === "s") return choose(TIMES, largest);
  if (unit === "B") return choose(BYTES, largest);
  if (unit === "1") return { factor: 100, suffix: " %", title: "%" };
  if (unit === "1/s") return { factor: 1, suffix: " /s", title: "per second" };
  return { factor: 1, suffix: "", title: "" };
}

function choose(table, largest) {
  const [, factor, name] = table.find(([below]) => Math.abs(largest) < below);
  return { factor, suffix: ` ${name}`, title: name };
}

export function scaled(values, scale) {
  return values.map((value) => (value === null ? null : value * scale.factor));
}

// Made once: with `toLocaleString` the texts of a long run take longer than all that is drawn of it.
const BY_DIGITS = [0, 1, 2].map((shown) => new Intl.NumberFormat("en", { minimumFractionDigits: shown, maximumFractionDigits: shown }));
const WHOLE = new Intl.NumberFormat("en");

export function digits(value) {
  const size = Math.abs(value);
  if (size > 0 && size < 0.0995) return value.toPrecision(3);
  return BY_DIGITS[size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2].format(value);
}

// A count, or the number of a step.
export function counted(value) {
  return WHOLE.format(value);
}

export function measured(value, scale) {
  return value === null || value === undefined ? "not measured" : digits(value * scale.factor) + scale.suffix;
}

export function bytes(amount) {
  const units = [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
  const [size, name] = units.find(([least]) => amount >= least) ?? [1, "B"];
  return `${size === 1 ? amount : digits(amount / size)} ${name}`;
}

export function largest(...lists) {
  let most = 0;
  for (const list of lists) for (const value of list ?? []) if (value !== null && value > most) most = value;
  return most;
}
