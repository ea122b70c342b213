// One run on the page: asks for it again and again, and draws what has changed.

import { Source } from "./api.js";
import { Captures } from "./captures.js";
import { el, fill, whenChanged } from "./dom.js";
import { drawLines } from "./lines.js";
import * as panels from "./panels.js";
import { ranks } from "./ranks.js";
import { drawSteps } from "./steps.js";
import { isDark } from "./theme.js";
import { tried } from "./tried.js";
import { counted } from "./units.js";
import { clear } from "./zoom.js";

export class Column {
  constructor(onChange) {
    this.onChange = onChange;
    this.source = new Source();
    this.view = { rank: null, first: null, last: null };
    this.plots = new Map();
    this.section = Object.fromEntries(["answer", "breakdown", "facts", "charts", "absent", "findings", "tried", "ranks", "captures", "readings"]
      .map((name) => [name, el("section", { class: name })]));
    this.phases = el("div", { class: "legendtable" });
    this.head = el("div", { class: "head" });
    this.steps = el("div", { class: "plot steps" });
    this.section.breakdown.append(this.head, this.steps, this.phases);
    this.captures = new Captures(this.section.captures);
    this.node = el("article", { class: "column" }, Object.values(this.section));
  }

  choose(run) {
    if (run === this.run) return;
    this.run = run;
    this.data = null;
    this.view = { rank: null, first: null, last: null };
    this.source.forget();
  }

  // Asks for the run; true when there is something new to draw.
  async poll() {
    const { run, view } = this;
    if (!run) return false;
    const answer = await this.source.ask("run", { run, ...view });
    // Somebody may have chosen another run or window while this one was on its way.
    if (answer === null || run !== this.run || view !== this.view) return false;
    this.data = answer;
    this.failed = false;
    return true;
  }

  fail(message) {
    this.failed = true;
    this.data = null;
    this.source.forget();
    for (const section of Object.values(this.section)) section.hidden = true;
    this.section.answer.hidden = false;
    whenChanged(this.section.answer, message, (node) => fill(node, el("p", { class: "warning" }, message)));
  }

  async look(change) {
    this.view = { ...this.view, ...change };
    try {
      if (await this.poll()) this.onChange();
    } catch (error) {
      this.fail(error.message);
    }
  }

  zoom(range) {
    const [first, last] = range ?? [null, null];
    return this.look({ first: first === null ? null : Math.max(0, Math.ceil(first)), last: last === null ? null : Math.max(0, Math.floor(last)) });
  }

  // `shared`: the frames that both runs have in common; `keep`: charts that the other run can draw.
  draw(shared) {
    if (!this.data) return;
    const { words, series, captures, trials } = this.data;
    for (const section of Object.values(this.section)) section.hidden = false;
    whenChanged(this.section.answer, words, (node) => panels.answer(node, words));
    whenChanged(this.phases, [words.phases, words.phases_of], (node) => panels.phases(node, words.phases, words.phases_of));
    whenChanged(this.section.facts, [words.facts, words.fit], (node) => panels.facts(node, words));
    whenChanged(this.section.findings, words.findings, (node) => panels.findings(node, words));
    whenChanged(this.section.tried, trials, (node) => tried(node, trials));
    this.section.tried.hidden = !trials;
    whenChanged(this.section.ranks, [words.late, words.ranks_lost, words.rank_map], (node) => ranks(node, [...words.late, ...words.ranks_lost], words.rank_map));
    whenChanged(this.section.readings, words.readings, (node) => panels.readings(node, words.readings));
    this.section.ranks.hidden = !words.rank_map;
    this.drawCharts(words, series, shared);
    this.captures.show(this.run, captures, words.no_trace);
  }

  drawCharts(words, series, shared) {
    const { steps } = series;
    this.section.breakdown.hidden = !steps;
    whenChanged(this.head, [words.ranks, steps?.rank, steps?.width, this.view], (node) => this.heading(node, words, steps));
    const range = this.range();
    const zoom = (chosen) => this.zoom(chosen);
    if (steps) whenChanged(this.steps, [steps, range, shared.frame_s, isDark()], (node) => drawSteps(node, steps, range, shared.frame_s, zoom));
    const there = series.charts.filter((chart) => steps && (chart.lines.length || shared.drawn.has(chart.key)));
    const key = there.map((chart) => chart.key);
    whenChanged(this.section.charts, key, (node) => fill(node, there.map((chart) => this.card(chart))));
    for (const chart of there) {
      const { plot, note } = this.plots.get(chart.key);
      whenChanged(note, [chart.what, chart.note, chart.absent], (node) => fill(node, chart.what, chart.note ? ` ${chart.note}` : ""));
      whenChanged(plot, [chart, steps, range, shared.most[chart.key], isDark()], (node) => this.plot(node, chart, steps, range, shared, zoom));
    }
    const missing = series.charts.filter((chart) => chart.absent && !there.includes(chart));
    whenChanged(this.section.absent, missing.map((chart) => chart.absent), (node) => panels.absent(node, missing));
  }

  plot(node, chart, steps, range, shared, zoom) {
    node.classList.toggle("empty", !chart.lines.length);
    if (chart.lines.length) return drawLines(node, chart, steps, range, shared.most[chart.key], zoom);
    return clear(node, () => fill(node, el("p", { class: "quiet" }, chart.absent)));
  }

  card(chart) {
    const cached = this.plots.get(chart.key);
    if (cached) return cached.card;
    const plot = el("div", { class: "plot line" });
    const note = el("p", { class: "quiet small" });
    const card = el("figure", { class: "card", "data-chart": chart.key }, el("figcaption", {}, chart.title), plot, note);
    this.plots.set(chart.key, { card, plot, note });
    return card;
  }

  heading(node, words, steps) {
    const select = el("select", { "aria-label": "rank", onchange: () => this.look({ rank: select.value === "" ? null : Number(select.value) }) },
      el("option", { value: "" }, "mean of all ranks"),
      words.ranks.map((rank) => el("option", { value: rank, selected: rank === steps?.rank }, `rank ${rank}`)));
    const zoomed = this.view.first !== null || this.view.last !== null;
    const grouped = steps && steps.width > 1 ? `Each column is the mean of ${counted(steps.width)} steps, the line the slowest of them; zoom in for single steps.` : "Each column is one step.";
    fill(node, el("h3", {}, "Where a step goes, on the host"), words.ranks.length > 1 ? select : null,
      el("span", { class: "quiet small" }, grouped),
      zoomed ? el("button", { type: "button", onclick: () => this.zoom(null) }, "whole run") : null);
  }

  range() {
    const { first, last } = this.view;
    return first === null || last === null ? null : [first - 0.5, last + 0.5];
  }

  // After a change of colours everything drawn has to be drawn anew.
  redraw() {
    this.captures.redraw();
  }
}
