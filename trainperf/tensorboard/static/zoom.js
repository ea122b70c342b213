// Gives Plotly what to draw when it is there, and tells which part of a chart somebody has chosen.

import { el, fill } from "./dom.js";

const listened = new WeakSet();

let plotly = null;

// Plotly takes a second to start, in which nothing else is drawn: it is asked for with the first chart, and
// begins when the words next to that chart have been painted.
function loaded() {
  plotly ??= new Promise((done) => {
    const script = el("script", { src: "plotly.min.js", charset: "utf-8" });
    script.addEventListener("load", () => done(globalThis.Plotly));
    script.addEventListener("error", () => done(null));
    requestAnimationFrame(() => setTimeout(() => document.head.append(script)));
  });
  return plotly;
}

export function isThere() {
  return Boolean(globalThis.Plotly);
}

// Charts are drawn one after the other, and each can be seen before the next one is begun.
let last = Promise.resolve();

export function draw(node, traces, layout, config, onZoom) {
  const mine = last.then(() => drawn(node, traces, layout, config, onZoom));
  last = mine.catch(() => null).then(() => new Promise((done) => { setTimeout(done); }));
  return mine;
}

async function drawn(node, traces, layout, config, onZoom) {
  const Plotly = await loaded();
  if (!Plotly) return fill(node, el("p", { class: "quiet" }, "No charts: the Python package plotly is not installed where TensorBoard runs."));
  await Plotly.react(node, traces, layout, config);
  if (listened.has(node)) return null;
  listened.add(node);
  node.on("plotly_relayout", (event) => {
    const [from, to] = [event["xaxis.range[0]"], event["xaxis.range[1]"]];
    if (from !== undefined && to !== undefined) onZoom([Number(from), Number(to)]);
  });
  node.on("plotly_doubleclick", () => onZoom(null));
  return null;
}

// Puts words where a chart was.
export async function clear(node, write) {
  // What is still being drawn there comes first.
  await last;
  if (listened.delete(node)) (await loaded()).purge(node);
  write();
}
