// The captures of a run: each trace summed up, drawn, and to be had as a file.

import { Source, url } from "./api.js";
import { el, fill, parsed, whenChanged } from "./dom.js";
import { openInPerfetto } from "./perfetto.js";
import { zoomable } from "./zoom.js";

const UNITS = ["B", "KiB", "MiB", "GiB"];

export class Captures {
  constructor(node) {
    this.node = node;
    this.open = new Set();
    this.cards = new Map();
    zoomable(node, (picture, range) => this.zoom(picture, range));
  }

  show(run, captures) {
    this.node.hidden = !captures.length;
    whenChanged(this.node, [run, captures], () => {
      if (run !== this.run) this.begin(run, captures);
      fill(this.node, el("h2", {}, "Traces"), captures.map((capture) => this.kept(capture)));
    });
  }

  // Another run: of its captures the last one is unfolded.
  begin(run, captures) {
    this.run = run;
    this.cards.clear();
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

  card(capture) {
    const body = el("div", { class: "capture" });
    const open = this.open.has(capture.key);
    const card = el("details", { open }, el("summary", {}, el("b", {}, capture.title), " ", el("span", { class: "shut" }, capture.answer)), body);
    card.dataset.key = capture.key;
    card.addEventListener("toggle", () => {
      if (card.open) this.open.add(capture.key);
      else this.open.delete(capture.key);
      if (card.open) whenChanged(body, capture.version, () => this.read(body, capture));
    });
    return card;
  }

  async read(body, capture) {
    const files = this.files(capture.traces);
    if (capture.problem) return fill(body, el("p", { class: "soft" }, capture.problem), files);
    try {
      const { html } = await new Source().ask("capture", { run: this.run, key: capture.key });
      fill(body, parsed(html), files);
    } catch (error) {
      fill(body, el("p", { class: "warn" }, error.message), files);
    }
    return null;
  }

  async zoom(picture, range) {
    const [first_s, last_s] = range ?? [null, null];
    const { key } = picture.closest("[data-key]").dataset;
    const { place } = picture.closest("[data-place]").dataset;
    const { html } = await new Source().ask("picture", { run: this.run, key, place, first_s, last_s });
    picture.replaceWith(...parsed(html));
  }

  files(traces) {
    const note = el("p", { class: "soft small" }, "Perfetto: hands the trace to ui.perfetto.dev in a new window, which needs the internet. Nothing else here does.");
    return traces.length ? el("div", { class: "files" }, traces.map((trace) => this.file(trace)), note) : null;
  }

  file(trace) {
    const address = url("trace", { run: this.run, file: trace.file });
    const state = el("span", { class: "soft small", role: "status" });
    return el("p", { class: "file" },
      el("a", { href: address, download: trace.file }, `Download ${trace.file}`), el("span", { class: "soft" }, bytes(trace.bytes)),
      el("button", { type: "button", onclick: () => openInPerfetto(address, trace.file, (text) => fill(state, text)) }, "Open in Perfetto ↗"), state);
  }
}

function bytes(amount) {
  const place = Math.min(UNITS.length - 1, Math.floor(Math.log2(Math.max(amount, 1)) / 10));
  return `${(amount / 1024 ** place).toPrecision(3)} ${UNITS[place]}`;
}
