// What was tried in a run: a bar per change and per ceiling, on one logarithmic axis. Words come from the server.

import { el, fill } from "./dom.js";

const FARTHEST = 10;
const NEAREST = 1.1;
const TICKS = [1, 2, 4, 0.5, 0.25, 10, 1.25, 1.5, 0.8, 0.67, 3, 6];
const APART = 0.09;
const KINDS = { faster: "good", slower: "bad", "loss differs": "doubt" };
const COUNTS = new Set(["faster", "slower", "equal", "undecided"]);

export function tried(node, view) {
  if (!view) return fill(node);
  const open = node.querySelector("details")?.open ?? false;
  const changes = [...view.sets, ...view.changes].sort((one, other) => rank(other) - rank(one));
  const at = axis([...changes, ...view.ceilings]);
  return fill(node,
    el("h3", {}, "What was tried"),
    el("p", {}, view.answer),
    bars(changes, at),
    changes.length ? el("p", { class: "quiet small" }, "Bar: how many times as fast, from 1×, the training as it is; line across its end: 95 % CI. A click on a line of code selects it.") : null,
    view.ceilings.length ? [el("h4", {}, "Ceilings"), bars(view.ceilings, at, "most"),
      el("p", { class: "quiet small" }, "No changes to make: each leaves work out, so no change to that work brings more than this.")] : null,
    view.unavailable.length ? el("details", { class: "quiet small", open }, el("summary", {}, `Not applicable: ${view.unavailable.length}`),
      el("ul", {}, view.unavailable.map((why) => el("li", {}, why)))) : null,
    el("ul", { class: "quiet small" }, view.notes.map((note) => el("li", {}, note))),
    el("dl", { class: "labelled" }, el("div", {}, el("dt", {}, "next"), el("dd", {}, el("code", {}, view.next)))));
}

function rank(row) {
  return COUNTS.has(row.kind) ? row.value ?? 0 : -1;
}

// From a speed-up to its place, a share of the axis.
function axis(rows) {
  const ends = rows.flatMap((row) => [row.low, row.high, row.value]).filter((end) => end !== null);
  const low = Math.log(Math.max(Math.min(1 / NEAREST, ...ends), 1 / FARTHEST) / 1.03);
  const high = Math.log(Math.min(Math.max(NEAREST, ...ends), FARTHEST) * 1.03);
  return (value) => Math.min(1, Math.max(0, (Math.log(value) - low) / (high - low)));
}

function bars(rows, at, kind = null) {
  if (!rows.length) return null;
  const scale = el("div", { class: "trial scale" }, el("div", {}), el("div", { class: "forest" }, ticks(at)));
  return el("div", { class: "trials" }, scale, rows.map((row) => trial(row, at, kind)));
}

function ticks(at) {
  const taken = [];
  for (const tick of TICKS) {
    const place = at(tick);
    if (place > 0 && place < 1 && taken.every((other) => Math.abs(at(other) - place) >= APART)) taken.push(tick);
  }
  return taken.map((tick) => el("span", { class: "tick", style: `left: ${100 * at(tick)}%` }, `${tick}×`));
}

function trial(row, at, ceiling) {
  const kind = ceiling ?? KINDS[row.kind] ?? "even";
  const loss = row.loss && !row.note.includes(row.loss) ? `loss ${row.loss}` : "";
  const marks = [el("span", { class: "unity", style: `left: ${100 * at(1)}%` })];
  if (row.value !== null) marks.push(reach(1, row.value, `gained ${kind}`, at), reach(row.low, row.high, "whisker", at));
  return el("div", { class: "trial" },
    el("div", { class: "what" }, row.title,
      row.lines.map(([line, where]) => el("p", { class: "small" }, el("code", {}, line), where ? el("span", { class: "quiet" }, ` (${where})`) : null)),
      el("p", { class: "quiet small" }, [row.note, loss].filter(Boolean).join("; "))),
    el("div", { class: "forest" }, marks),
    el("div", { class: "speed" }, el("b", {}, row.speedup), ` ${row.interval}`),
    el("div", { class: `verdict ${ceiling ? "" : kind}` }, `${row.mark} ${row.verdict}`));
}

function reach(one, other, kind, at) {
  const [low, high] = [at(one), at(other)].sort((a, b) => a - b);
  return el("span", { class: `reach ${kind}`, style: `left: ${100 * low}%; width: ${100 * (high - low)}%` });
}
