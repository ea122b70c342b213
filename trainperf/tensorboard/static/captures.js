// The captures of a run: each trace summed up, drawn, and to be had as a file.

import { Source, url } from "./api.js";
import { el, fill, whenChanged } from "./dom.js";
import { table } from "./panels.js";
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

  show(run, captures) {
    whenChanged(this.node, [run, captures], () => {
      if (run !== this.run) this.begin(run, captures);
      fill(this.node, el("h3", {}, "Captures"),
        captures.length ? captures.map((capture) => this.kept(capture)) : el("p", { class: "quiet" }, "No trace was captured: ScheduledProfiler records some steps."));
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
    const said = JSON.stringify(capture);
    const known = this.cards.get(capture.key);
    if (known?.said === said) return known.card;
    const card = this.card(capture);
    this.cards.set(capture.key, { said, card });
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
      const words = await new Source().ask("capture", { run: this.run, key: capture.key });
      const shown = el("div");
      const chosen = el("select", { onchange: () => this.rank(shown, capture, words.ranks[chosen.selectedIndex]) }, words.ranks.map((rank) => el("option", {}, rank.label)));
      fill(body, said(words), words.ranks.length > 1 ? el("label", {}, "trace of ", chosen) : null, shown, files);
      if (words.ranks.length) await this.rank(shown, capture, words.ranks[0]);
    } catch (error) {
      fill(body, el("p", { class: "warning" }, error.message), files);
    }
    return null;
  }

  async rank(node, capture, rank) {
    const picture = el("div");
    fill(node,
      el("p", { class: "quiet" }, rank.about),
      rank.warnings.map((warning) => el("p", { class: "warning" }, warning)),
      el("dl", { class: "facts" }, rank.totals.map((total) => el("div", {}, el("dt", {}, total.name), el("dd", {}, total.said)))),
      picture,
      rank.tables.map((part) => el("details", {}, el("summary", {}, part.title), table(part.head, part.rows))),
      rank.absent.length ? el("details", {}, el("summary", {}, "Not in this trace"), el("dl", { class: "absent" }, rank.absent.map((each) => el("div", {}, el("dt", {}, each.name), el("dd", {}, each.said))))) : null);
    if (!rank.has_picture) return;
    const timeline = new Timeline(picture, { run: this.run, key: capture.key, place: rank.place });
    this.timelines.set(capture.key, timeline);
    await timeline.show();
  }

  files(traces) {
    const said = el("p", { class: "quiet small" }, "Perfetto: hands the trace to ui.perfetto.dev in a new window, which needs the internet. Nothing else here does.");
    return traces.length ? el("div", { class: "files" }, traces.map((trace) => this.file(trace)), said) : null;
  }

  file(trace) {
    const address = url("trace", { run: this.run, file: trace.file });
    const state = el("span", { class: "quiet small", role: "status" });
    return el("p", { class: "file" },
      el("a", { href: address, download: trace.file }, `Download ${trace.file}`), el("span", { class: "quiet" }, bytes(trace.bytes)),
      el("button", { type: "button", onclick: () => openInPerfetto(address, trace.file, (text) => fill(state, text)) }, "Open in Perfetto ↗"), state);
  }
}

function said(words) {
  return [
    el("p", { class: "answer small" }, words.headline),
    words.warnings.map((warning) => el("p", { class: "warning" }, warning)),
    words.findings.map((finding) => el("p", {}, el("b", {}, finding.name), " ", finding.said)),
    words.stragglers.length ? el("details", {}, el("summary", {}, `Who comes last (${words.stragglers.length} steps)`), el("ul", {}, words.stragglers.map((line) => el("li", {}, line)))) : null,
  ];
}
