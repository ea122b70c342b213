// The picture of one rank's trace: lanes of slices. A zoomed window is asked for again, in detail.

import { Source } from "./api.js";
import { asPlotlyText, el, fill } from "./dom.js";
import { colour, CONFIG, layout } from "./theme.js";
import { digits, scaleOf } from "./units.js";
import { draw } from "./zoom.js";

const LANE_HEIGHT = 30;
const AROUND = 56;
// Plotly would make the bars of a kind wider that is in every second lane only.
const BAR = 0.74;

export class Timeline {
  constructor(node, query) {
    this.query = query;
    this.source = new Source();
    this.plot = el("div", { class: "plot timeline" });
    this.legend = el("p", { class: "legend" });
    this.back = el("button", { type: "button", hidden: true, onclick: () => this.show() }, "whole capture");
    fill(node, this.legend, this.plot, el("p", { class: "quiet small" }, "Drag across to zoom in, double-click for the whole capture. ", this.back));
  }

  async show(window = null) {
    this.window = window;
    this.back.hidden = window === null;
    const [first_s, last_s] = window ?? [null, null];
    const picture = await this.source.ask("picture", { ...this.query, first_s, last_s });
    if (picture !== null) this.picture = picture;
    return this.redraw();
  }

  redraw() {
    if (!this.picture) return null;
    const { picture } = this;
    const scale = scaleOf("s", picture.last_s - picture.first_s);
    const kinds = [...new Set(picture.lanes.flatMap((lane) => lane.kinds))];
    fill(this.legend, kinds.map((kind) => el("span", {}, el("i", { class: "swatch", style: `background: var(--kind-${paletteKind(kind)})` }), kind)), picture.note);
    const height = picture.lanes.length * LANE_HEIGHT + AROUND;
    this.plot.style.height = `${height}px`;
    const names = picture.lanes.map((lane) => asPlotlyText(lane.name));
    const at = (moment_s) => (moment_s - picture.first_s) * scale.factor;
    const ends = this.window ?? [picture.first_s, picture.last_s];
    const shape = layout({
      height, barmode: "overlay", bargap: 0.25, hovermode: "closest", margin: { l: 90, r: 14, t: 8, b: 40 },
      xaxis: { range: ends.map(at), title: { text: scale.title, standoff: 6 }, tickformat: "", showgrid: true },
      yaxis: { range: [names.length - 0.5, -0.5], tickvals: names.map((_, row) => row), ticktext: names, showgrid: false, rangemode: "normal" },
    });
    const traces = kinds.map((kind) => bars(picture, kind, at, scale));
    return draw(this.plot, traces, shape, CONFIG, (range) => this.zoom(range, scale));
  }

  zoom(range, scale) {
    const window = range && range.map((value) => this.picture.first_s + value / scale.factor);
    return this.show(window);
  }
}

function bars(picture, kind, at, scale) {
  const trace = { type: "bar", orientation: "h", width: BAR, y: [], base: [], x: [], text: [], name: asPlotlyText(kind), meta: kind,
    textposition: "none", hovertemplate: "%{text}<extra></extra>", marker: { color: colour(`kind-${paletteKind(kind)}`), opacity: [], line: { width: 0 } } };
  picture.lanes.forEach((lane, row) => lane.kinds.forEach((each, place) => {
    if (each !== kind) return;
    const [start, end] = [at(lane.start_s[place]), at(lane.end_s[place])];
    const own = scaleOf("s", lane.end_s[place] - lane.start_s[place]);
    const took = (lane.end_s[place] - lane.start_s[place]) * own.factor;
    trace.y.push(row);
    trace.base.push(start);
    trace.x.push(end - start);
    trace.marker.opacity.push(Math.max(0.15, lane.share[place]));
    trace.text.push(`<b>${asPlotlyText(lane.names[place])}</b><br>${asPlotlyText(kind)}, ${digits(took)}${own.suffix} from ${digits(start)}${scale.suffix}`);
  }));
  return trace;
}

const KINDS = new Set(["step", "compute", "communication", "copy", "idle", "operator", "loader", "sync"]);

function paletteKind(kind) {
  return KINDS.has(kind) ? kind : "other";
}
