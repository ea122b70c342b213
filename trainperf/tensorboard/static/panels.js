// What is said about a run: the answer, the phases, findings, ranks, readings. Words come from the server.

import { el, fill } from "./dom.js";
import { counted } from "./units.js";

const CODE = new Set(["next", "where"]);

export function answer(node, words) {
  fill(
    node,
    el("div", { class: "title" },
      el("h2", {}, words.name),
      el("span", { class: `state ${words.state}` }, words.ending),
      el("span", { class: "quiet" }, words.about)),
    el("p", { class: "answer" }, unbroken(words.headline)),
    el("p", { class: "quiet" }, words.progress),
    rows(words.first, "next"),
    words.warnings.map((warning) => el("p", { class: "warning" }, warning)),
    words.remarks.map((remark) => el("p", { class: "quiet small" }, remark)),
  );
}

// A number stays on one line with its unit.
function unbroken(text) {
  return text.replaceAll(/(\d) (?=[^\s\d])/g, "$1\u00a0");
}

export function phases(node, rows, caption) {
  const most = Math.max(...rows.map((row) => row.fraction), 0.0001);
  fill(node, el("table", { class: "phases" }, el("caption", { class: "quiet small" }, caption), el("tbody", {}, rows.map((row) => phase(row, most)))));
}

function phase(row, most) {
  const swatch = el("td", {}, el("i", { class: "swatch", style: `background: var(--phase-${row.key})` }), row.label);
  if (row.absent) return el("tr", { class: "quiet" }, swatch, el("td", { colspan: 4 }, row.absent));
  const bar = el("i", { class: "share", style: `width: ${(100 * row.fraction) / most}%; background: var(--phase-${row.key})` });
  return el("tr", {}, swatch, el("td", { class: "number" }, row.time), el("td", { class: "track" }, bar),
    el("td", { class: "number" }, row.share), el("td", { class: "quiet note" }, row.note));
}

export function facts(node, words) {
  fill(
    node,
    words.facts.length ? el("dl", { class: "facts" }, words.facts.map((fact) => el("div", {}, el("dt", {}, fact.name), el("dd", {}, fact.value)))) : null,
    words.fit.length ? el("div", { class: "fit" }, el("span", { class: "quiet small" }, `the ${words.whole}, ${words.fit_time}`), ledger(words.fit)) : null,
  );
}

function ledger(parts) {
  return [
    el("div", { class: "ledger" }, parts.map((part, place) => el("span", {
      class: `part part-${place % 8}`, style: `flex-grow: ${Math.max(part.fraction, 0.002)}`, title: `${part.name} ${part.value}`,
    }))),
    el("p", { class: "legend" }, parts.map((part, place) => el("span", {}, el("i", { class: `swatch part-${place % 8}` }), `${part.name} ${part.value}`))),
  ];
}

export function findings(node, { findings: list, no_finding: none }) {
  fill(node, el("h3", {}, "Findings"), list.length ? list.map(finding) : el("p", { class: "quiet" }, none));
}

export function finding(item) {
  return el("article", { class: `finding ${item.severity}` },
    el("h4", {}, item.title, item.gain ? el("span", { class: "gain" }, item.gain) : null),
    item.evidence.length ? el("ul", {}, item.evidence.map((line) => el("li", {}, line))) : null,
    rows(item.rows));
}

function rows(labelled, kind = "") {
  if (!labelled.length) return null;
  return el("dl", { class: `labelled ${kind}` }, labelled.map(([label, text]) => el("div", {},
    el("dt", {}, label), el("dd", {}, CODE.has(label) ? el("code", {}, text) : text))));
}

export function readings(node, list) {
  const rows = list.map((reading) => [reading.name, reading.value || reading.reason, reading.interval, reading.value ? counted(reading.steps) : ""]);
  const body = table(["reading", "value", "95 % CI", "steps"], rows);
  body.querySelectorAll("tbody tr").forEach((row, place) => { if (!list[place].value) row.classList.add("quiet"); });
  const open = node.querySelector("details")?.open ?? false;
  fill(node, el("details", { open }, el("summary", {}, `All ${list.length} readings`), body));
}

export function absent(node, charts) {
  fill(node, charts.length ? el("h3", {}, "Not shown") : null, charts.length ? el("dl", { class: "absent" }, charts.map((chart) => el("div", {}, el("dt", {}, chart.title), el("dd", {}, chart.absent)))) : null);
}

// A `Table` of the reports: words to the left, numbers to the right, notes below.
export function grid({ head, rows: body, words, end_words: endWords, notes }) {
  const kind = (place) => (place < words || place >= head.length - endWords ? null : "number");
  return [
    el("div", { class: "scroll" }, el("table", { class: "plain" },
      el("thead", {}, el("tr", {}, head.map((cell, place) => el("th", { class: kind(place) }, cell)))),
      el("tbody", {}, body.map((row) => el("tr", {}, row.map((cell, place) => el("td", { class: cell.length > 40 ? "long" : kind(place) }, cell))))))),
    notes.map((note) => el("p", { class: "quiet small" }, note)),
  ];
}

export function table(head, rows) {
  return el("div", { class: "scroll" }, el("table", { class: "plain" },
    el("thead", {}, el("tr", {}, head.map((cell) => el("th", {}, cell)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell) => el("td", { class: cell.length > 40 ? "long" : null }, cell)))))));
}
