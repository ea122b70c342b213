// The captures of a run: each trace summed up, drawn, and to be had as a file.

import { Source, url } from "./api.js";
import { el, fill, whenChanged } from "./dom.js";
import { finding, grid } from "./panels.js";
import { openInPerfetto } from "./perfetto.js";
import { Timeline } from "./timeline.js";
import { bytes } from "./units.js";

export class Captures {
  constructor(node) {
    this.node = node;
    this.open = new Set();
    this.cards = new Map();
    this.timelines = new Map();
  }

  show(run, captures, none) {
    whenChanged(this.node, [run, captures, none], () => {
      if (run !== this.run) this.begin(run, captures);
      fill(this.node, el("h3", {}, "Captures"),
        captures.length ? captures.map((capture) => this.kept(capture)) : el("p", { class: "quiet" }, none));
    });
  }

  // Another run: of its captures the last one is unfolded.
  begin(run, captures) {
    this.run = run;
    this.cards.clear();
    this.timelines.clear();
    this.open = new Set(captures.filter((capture) => !capture.problem).slice(-1).map((capture) => capture.key));
  }

  // While training goes on captures are added: what somebody looks at in the others stays.
  kept(capture) {
    const content = JSON.stringify(capture);
    const cached = this.cards.get(capture.key);
    if (cached?.content === content) return cached.card;
    const card = this.card(capture);
    this.cards.set(capture.key, { content, card });
    return card;
  }

  redraw() {
    for (const timeline of this.timelines.values()) timeline.redraw();
  }

  card(capture) {
    const body = el("div", { class: "capture" });
    const open = this.open.has(capture.key);
    const card = el("details", { open }, el("summary", {}, el("b", {}, capture.title), " ", el("span", { class: "shut" }, capture.answer)), body);
    const read = () => {
      if (card.open) this.open.add(capture.key);
      else this.open.delete(capture.key);
      if (card.open) whenChanged(body, capture.version, () => this.read(body, capture));
    };
    card.addEventListener("toggle", read);
    return card;
  }

  async read(body, capture) {
    const files = this.files(capture.traces);
    if (capture.problem) return fill(body, el("p", { class: "quiet" }, capture.problem), files);
    try {
      const view = await new Source().ask("capture", { run: this.run, key: capture.key });
      const shown = el("div");
      const chosen = el("select", { onchange: () => this.rank(shown, capture, view.ranks[chosen.selectedIndex]) }, view.ranks.map((rank) => el("option", {}, rank.label)));
      fill(body, summed(view), view.ranks.length > 1 ? el("label", {}, "trace of ", chosen) : null, shown, files);
      if (view.ranks.length) await this.rank(shown, capture, view.ranks[0]);
    } catch (error) {
      fill(body, el("p", { class: "warning" }, error.message), files);
    }
    return null;
  }

  async rank(node, capture, rank) {
    const picture = el("div");
    fill(node,
      el("p", { class: "quiet" }, rank.about),
      stepRows(rank.rows),
      picture,
      rank.tables.map(folded),
      rank.missing.length ? el("details", {}, el("summary", {}, "Not measured"), el("dl", { class: "absent" }, rank.missing.map((group) => el("div", {}, el("dt", {}, group.names.join(", ")), el("dd", {}, group.reason))))) : null);
    if (!rank.has_picture) return;
    const timeline = new Timeline(picture, { run: this.run, key: capture.key, place: rank.place });
    this.timelines.set(capture.key, timeline);
    await timeline.show();
  }

  files(traces) {
    const note = el("p", { class: "quiet small" }, "Perfetto: hands the trace to ui.perfetto.dev in a new window, which needs the internet. Nothing else here does.");
    return traces.length ? el("div", { class: "files" }, traces.map((trace) => this.file(trace)), note) : null;
  }

  file(trace) {
    const address = url("trace", { run: this.run, file: trace.file });
    const state = el("span", { class: "quiet small", role: "status" });
    return el("p", { class: "file" },
      el("a", { href: address, download: trace.file }, `Download ${trace.file}`), el("span", { class: "quiet" }, bytes(trace.bytes)),
      el("button", { type: "button", onclick: () => openInPerfetto(address, trace.file, (text) => fill(state, text)) }, "Open in Perfetto ↗"), state);
  }
}

// Where the mean step goes: a row for each figure, its parts indented.
function stepRows(rows) {
  return el("table", { class: "plain" }, el("tbody", {}, rows.map((row) => el("tr", {},
    el("td", { class: row.inner ? "inner" : null }, row.name), el("td", { class: "number" }, row.value), el("td", { class: "quiet long" }, row.note)))));
}

function folded(table) {
  return el("details", {}, el("summary", {}, table.title), grid(table));
}

function summed(view) {
  return [
    el("p", { class: "answer small" }, view.answer),
    view.warnings.map((warning) => el("p", { class: "warning" }, warning)),
    view.findings.map(finding),
    view.tables.map(folded),
  ];
}
