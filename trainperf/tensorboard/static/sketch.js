// The first picture of the step-time breakdown, in the frame that Plotly draws it in a moment later.

import { el } from "./dom.js";
import { colour } from "./theme.js";
import { measured } from "./units.js";

// `place`: the plot's left, top, width and height in the node; `range`: first and last step of the axis.
export function sketch(node, steps, place, range, frame, scale) {
  const canvas = el("canvas", { class: "sketch" });
  const sharp = globalThis.devicePixelRatio || 1;
  canvas.width = node.clientWidth * sharp;
  canvas.height = node.clientHeight * sharp;
  const paint = canvas.getContext("2d");
  paint.scale(sharp, sharp);
  const across = place.width / (range[1] - range[0]);
  const bottom = place.top + place.height;
  const floors = steps.begins.map(() => bottom);
  for (const phase of steps.phases) {
    paint.fillStyle = colour(`phase-${phase.key}`);
    phase.mean_s.forEach((value, group) => {
      const top = Math.max(place.top, floors[group] - (value ?? 0) / frame * place.height);
      const left = place.left + (steps.begins[group] - 0.5 - range[0]) * across;
      // A little wider than the group, lest the page shine through between two.
      paint.fillRect(left, top, steps.width * across + 0.3, floors[group] - top);
      floors[group] = top;
    });
  }
  paint.fillStyle = colour("quiet");
  paint.font = "11px system-ui, sans-serif";
  paint.textAlign = "right";
  paint.fillText(measured(frame, scale), place.left - 6, place.top + 8);
  paint.fillText("0", place.left - 6, bottom);
  paint.textAlign = "center";
  paint.fillText("step", place.left + place.width / 2, bottom + 30);
  node.append(canvas);
  return canvas;
}
