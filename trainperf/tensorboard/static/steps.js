// The step-time breakdown: phases stacked over steps, and below them the steps that are unusual.

import { asPlotlyText } from "./dom.js";
import { sketch } from "./sketch.js";
import { colour, CONFIG, faint, layout } from "./theme.js";
import { counted, digits, measured, scaled, scaleOf } from "./units.js";
import { draw, isThere } from "./zoom.js";

const MOST_BARS = 300;
const PLOT_HEIGHT = 250;
const ROW_HEIGHT = 18;
const BELOW = 40;
const LEFT = 64;
const RIGHT = 14;
const TOP = 8;
const BETWEEN = 12;

export function drawSteps(node, steps, range, frame, onZoom) {
  const scale = scaleOf("s", frame);
  const strip = steps.tags.length * ROW_HEIGHT;
  const height = PLOT_HEIGHT + strip + (strip ? BETWEEN : 0) + BELOW + TOP;
  node.style.height = `${height}px`;
  const inner = height - BELOW - TOP;
  const plot = [strip ? (strip + BETWEEN) / inner : 0, 1];
  const shape = layout({
    height, barmode: "stack", bargap: 0, margin: { l: LEFT, r: RIGHT, t: TOP, b: BELOW },
    xaxis: { range: range ?? whole(steps), title: { text: "step", standoff: 6 }, anchor: strip ? "y2" : "y", unifiedhovertitle: { text: heading(steps) } },
    yaxis: { range: [0, frame * scale.factor], domain: plot, title: { text: scale.title, standoff: 6 } },
    ...(strip ? { yaxis2: rows(steps.tags, strip / inner) } : {}),
  });
  const place = { left: LEFT, top: TOP, width: node.clientWidth - LEFT - RIGHT, height: PLOT_HEIGHT };
  const first = isThere() ? null : sketch(node, steps, place, range ?? whole(steps), frame, scale);
  const drawn = draw(node, [...stack(steps, scale), ...extremes(steps, scale, frame), ...tags(steps, scale)], shape, CONFIG, onZoom);
  return drawn.finally(() => first?.remove());
}

function centres(steps) {
  return steps.begins.map((first) => first + (steps.width - 1) / 2);
}

function whole(steps) {
  return [steps.begins[0] - 0.5, steps.begins.at(-1) + steps.width - 0.5];
}

function heading(steps) {
  return steps.width === 1 ? "step %{x:,.0f}" : `${counted(steps.width)} steps about %{x:,.0f}`;
}

function stack(steps, scale) {
  const x = centres(steps);
  const form = steps.begins.length <= MOST_BARS
    ? { type: "bar", width: steps.width }
    : { type: "scatter", mode: "lines", stackgroup: "phases", line: { width: 0, shape: "hvh" } };
  return steps.phases.map((phase) => {
    const tone = colour(`phase-${phase.key}`);
    const paint = form.type === "bar"
      ? { marker: { color: tone, line: { width: 0 } } }
      : { fillcolor: tone, line: { ...form.line, color: tone } };
    return {
      ...form, ...paint, x, y: scaled(phase.mean_s, scale), name: asPlotlyText(phase.label),
      // A phase that takes no time in any step is no line in what is said of each.
      ...(phase.mean_s.some((value) => value) ? { hovertemplate: `%{y:,.2f}${scale.suffix}` } : { hoverinfo: "skip" }),
      meta: phase.key,
    };
  });
}

// The slowest single step of each group; those beyond the frame are marked at its edge.
function extremes(steps, scale, frame) {
  const x = centres(steps);
  const unusual = tagged(steps);
  const text = steps.wall_s.map((mean, place) => sentence(steps, place, mean, scale) + (unusual.get(steps.begins[place]) ?? ""));
  const traces = [{
    type: "scatter", mode: "lines", x, y: scaled(steps.slowest_s, scale), text, name: "step",
    line: { width: steps.width > 1 ? 1 : 0, color: faint(colour("text"), 0.55), shape: "hvh" },
    hovertemplate: "%{text}", meta: "slowest",
  }];
  const beyond = steps.slowest_s.map((value, place) => (value > frame ? place : -1)).filter((place) => place >= 0);
  if (beyond.length) {
    traces.push({
      type: "scatter", mode: "markers", name: "beyond the frame", meta: "beyond", cliponaxis: false,
      x: beyond.map((place) => steps.slowest_at[place]), y: beyond.map(() => frame * scale.factor * 0.975),
      marker: { symbol: "triangle-up", size: 8, color: colour("warn"), line: { width: 1, color: colour("card") } },
      hoverinfo: "skip",
    });
  }
  return traces;
}

// What the tags of each group say, by its first step.
function tagged(steps) {
  const notes = new Map();
  for (const tag of steps.tags) {
    tag.at.forEach((step, place) => {
      const group = step - ((step - steps.begins[0]) % steps.width);
      const many = steps.width > 1 ? `${counted(tag.steps[place])} × ` : "";
      notes.set(group, `${notes.get(group) ?? ""}<br>${many}<b>${asPlotlyText(tag.label)}</b>: ${asPlotlyText(tag.why)}`);
    });
  }
  return notes;
}

function sentence(steps, place, mean, scale) {
  if (steps.width === 1) return measured(mean, scale);
  const [first, number] = [steps.begins[place], steps.steps[place]];
  const slowest = measured(steps.slowest_s[place], scale);
  return `${measured(mean, scale)} on average of ${counted(number)} from ${counted(first)}; `
    + `slowest ${slowest} (step ${counted(steps.slowest_at[place])})`;
}

function rows(tags, share) {
  return {
    domain: [0, share], range: [tags.length - 0.5, -0.5], tickvals: tags.map((_, row) => row),
    ticktext: tags.map((tag) => asPlotlyText(tag.label)), showgrid: false, rangemode: "normal", title: { text: "" },
  };
}

function tags(steps, scale) {
  return steps.tags.map((tag, row) => ({
    type: "scatter", mode: "markers", x: tag.at, y: tag.at.map(() => row), yaxis: "y2", name: asPlotlyText(tag.label), meta: `tag:${tag.key}`,
    marker: { symbol: "line-ns", size: ROW_HEIGHT - 6, line: { width: 2, color: colour(tag.left_out ? "tag" : "warn") } },
    text: tag.at.map((step, place) => why(tag, step, place, scale)),
    hovertemplate: "%{text}<extra></extra>",
  }));
}

function why(tag, step, place, scale) {
  const left = tag.left_out ? "excluded from the steady steps" : "counts as a steady step";
  const many = tag.steps[place] > 1 ? `<br>the slowest of ${counted(tag.steps[place])} such steps here` : "";
  const time = tag.wall_s[place] === null ? "" : `, ${digits(tag.wall_s[place] * scale.factor)}${scale.suffix}`;
  return `<b>step ${counted(step)}${time}: ${asPlotlyText(tag.label)}</b><br>${asPlotlyText(tag.why)}<br>${left}${many}`;
}
