// A small chart: lines over groups of steps, with the spread of single steps behind them.

import { asPlotlyText } from "./dom.js";
import { colour, CONFIG, faint, layout } from "./theme.js";
import { counted, digits, largest, scaled, scaleOf } from "./units.js";
import { draw } from "./zoom.js";

const FEW_POINTS = 60;

export function drawLines(node, chart, steps, range, most, onZoom) {
  const scale = scaleOf(chart.unit, most);
  const x = steps.begins.map((first) => first + (steps.width - 1) / 2);
  const whole = [steps.begins[0] - 0.5, steps.begins.at(-1) + steps.width - 0.5];
  const several = chart.lines.length > 1;
  const second = chart.lines.some((line) => line.second);
  const shape = layout({
    showlegend: several,
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11, color: colour("quiet") } },
    margin: { l: 56, r: second ? 52 : 14, t: several ? 26 : 10, b: 34 },
    xaxis: { range: range ?? whole, unifiedhovertitle: { text: steps.width === 1 ? "step %{x:,.0f}" : `${counted(steps.width)} steps about %{x:,.0f}` } },
    yaxis: { title: { text: scale.title, standoff: 6 }, ...frame(chart, most, scale) },
    ...(second ? { yaxis2: powers(chart.lines.filter((line) => line.second)) } : {}),
  });
  return draw(node, chart.lines.flatMap((line, place) => one(line, place, x, scale)), shape, CONFIG, onZoom);
}

// A loss scale is halved and doubled: its axis has powers of two.
function powers(lines) {
  const values = lines.flatMap((line) => line.values).filter((value) => value > 0);
  const [low, high] = [Math.floor(Math.log2(Math.min(...values))) - 1, Math.ceil(Math.log2(Math.max(...values))) + 1];
  const by = Math.max(1, Math.round((high - low) / 5));
  const ticks = [];
  for (let power = low; power <= high; power += by) ticks.push(power);
  return {
    overlaying: "y", side: "right", showgrid: false, type: "log", range: [low, high].map((power) => power * Math.log10(2)),
    tickvals: ticks.map((power) => 2 ** power), ticktext: ticks.map((power) => `2<sup>${power}</sup>`), title: { text: "loss scale", standoff: 6 },
  };
}

// Both runs of a pair have one frame; a loss is no amount and has no meaningful zero.
function frame(chart, most, scale) {
  if (chart.unit === "") return { rangemode: "normal" };
  return most > 0 ? { range: [0, most * scale.factor * 1.06] } : { range: [0, 1] };
}

function one(line, place, x, scale) {
  const tone = colour(`line-${place % 8}`);
  const name = asPlotlyText(line.label);
  const own = line.second ? { factor: 1, suffix: "" } : scale;
  const points = line.values.filter((value) => value !== null).length;
  const main = {
    type: "scatter", mode: points <= FEW_POINTS ? "lines+markers" : "lines", x, y: scaled(line.values, own), name, legendgroup: name, meta: line.key,
    line: { width: 1.6, color: tone, dash: line.second ? "dot" : "solid" }, marker: { size: 4 }, connectgaps: line.second,
    text: line.values.map((value, at) => told(value, line, at, own)), hovertemplate: "%{text}", ...(line.second ? { yaxis: "y2" } : {}),
  };
  if (!line.low || !line.high) return [main];
  const edge = { type: "scatter", mode: "lines", x, line: { width: 0, color: tone }, hoverinfo: "skip", showlegend: false, legendgroup: name };
  return [
    { ...edge, y: scaled(line.low, own), meta: `${line.key}:low` },
    { ...edge, y: scaled(line.high, own), fill: "tonexty", fillcolor: faint(tone, 0.18), meta: `${line.key}:high` },
    main,
  ];
}

// A value with its unit, and the extremes of its group where they differ.
function told(value, line, at, scale) {
  if (value === null) return "not measured";
  const [low, high] = [line.low?.[at] ?? value, line.high?.[at] ?? value];
  const spread = low === high ? "" : ` (${digits(low * scale.factor)} – ${digits(high * scale.factor)})`;
  return digits(value * scale.factor) + scale.suffix + spread;
}

// The frame shall hold the spread, unless single steps are far from everything else.
export function most(chart) {
  const values = largest(...chart.lines.filter((line) => !line.second).map((line) => line.values));
  const spread = largest(...chart.lines.filter((line) => !line.second).map((line) => line.high));
  return chart.unit === "1" ? Math.max(values, Math.min(spread, 1)) : Math.max(values, Math.min(spread, 3 * values));
}
