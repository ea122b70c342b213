// Gives Plotly what to draw when it is there, and tells which part of a chart somebody has chosen.

import { el, fill } from "./dom.js";

const listened = new WeakSet();

let plotly = null;

// The words of a page are there at once; Plotly takes a second to start and comes after them.
function loaded() {
  plotly ??= new Promise((done) => {
    const script = el("script", { src: "plotly.min.js", charset: "utf-8" });
    script.addEventListener("load", () => done(globalThis.Plotly));
    script.addEventListener("error", () => done(null));
    requestAnimationFrame(() => setTimeout(() => document.head.append(script)));
  });
  return plotly;
}

export async function draw(node, traces, layout, config, onZoom) {
  const Plotly = await loaded();
  if (!Plotly) return fill(node, el("p", { class: "quiet" }, "No charts: the Python package plotly is not installed where TensorBoard runs."));
  await Plotly.react(node, traces, layout, config);
  if (listened.has(node)) return null;
  listened.add(node);
  node.on("plotly_relayout", (event) => {
    const [first, last] = [event["xaxis.range[0]"], event["xaxis.range[1]"]];
    if (first !== undefined && last !== undefined) onZoom([Number(first), Number(last)]);
  });
  node.on("plotly_doubleclick", () => onZoom(null));
  return null;
}

// Puts words where a chart was.
export async function clear(node, write) {
  if (listened.delete(node)) (await loaded()).purge(node);
  write();
}
