// The ranks: all of many at a glance, and those that matter. Words come from the server.

import { el, fill } from "./dom.js";
import { grid } from "./panels.js";

export function ranks(node, late, map) {
  if (!map) return fill(node);
  const title = map.groups.length ? "The ranks that differ most" : "A steady step, rank by rank";
  return fill(node,
    el("h3", {}, "Ranks"),
    late.map((line) => el("p", { class: "late" }, line)),
    map.groups.length ? [el("h4", {}, "All ranks, by neighbours"), lanes(overview(map))] : null,
    el("h4", {}, title),
    table(map),
    el("p", { class: "quiet small" }, `${map.notes.join(". ")}.`));
}

// A row per figure, a cell per group of neighbours: the largest among them.
function overview({ columns, groups }) {
  return columns.map((name, place) => lane(name, groups[0].cells[place].waits ? "waits" : "hot", groups.map((group) => {
    const { heat, value, rank } = group.cells[place];
    return [heat, `ranks ${group.label}: ${name} up to ${value} (rank ${rank})`];
  })));
}

function lane(name, kind, cells) {
  return [el("span", { class: "quiet small" }, name), el("div", { class: "lane" }, cells.map(([heat, title]) => el("i", { class: heat > 0 ? kind : null, style: `opacity: ${heat > 0 ? heat : 1}`, title })))];
}

function lanes(rows) {
  return el("div", { class: "lanes" }, rows);
}

function table({ columns, typical, ranks: rows }) {
  const body = grid({ head: ["rank", ...columns], rows: [["typical", ...typical], ...rows.map((row) => [row.label, ...row.cells.map((cell) => cell.value)])], words: 1, end_words: 0, notes: [] });
  const lines = [...body[0].querySelectorAll("tbody tr")].slice(1);
  lines.forEach((line, place) => rows[place].cells.forEach((cell, column) => {
    if (cell.heat > 0) {
      const colour = cell.waits ? "accent" : "bad";
      line.children[column + 1].style.background = `color-mix(in srgb, var(--${colour}) ${60 * cell.heat}%, transparent)`;
    }
  }));
  return body;
}
