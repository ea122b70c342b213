// The ranks: those that matter. Words come from the server.

import { el, fill } from "./dom.js";
import { grid } from "./panels.js";

export function ranks(node, late, map) {
  if (!map) return fill(node);
  return fill(node,
    el("h3", {}, "Ranks"),
    late.map((line) => el("p", { class: "late" }, line)),
    el("h4", {}, "A steady step, rank by rank"),
    table(map),
    el("p", { class: "quiet small" }, `${map.notes.join(". ")}.`));
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
