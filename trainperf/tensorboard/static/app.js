// The page: which runs there are, which are shown, and when to ask again.

import { Source } from "./api.js";
import { Column } from "./column.js";
import { el, fill, whenChanged } from "./dom.js";
import { most } from "./lines.js";
import { onThemeChange } from "./theme.js";

const EVERY_MS = 3000;
const NONE = "";

const place = document.getElementById("columns");
const status = document.getElementById("status");
const pickers = [document.getElementById("run"), document.getElementById("beside")];
const empty = el("section", { class: "nothing" });
const list = new Source();
const columns = [new Column(draw), new Column(draw)];
let runs = [];
let chosen = fromAddress();
let timer = null;

// The address keeps what is chosen, so that a reload or a bookmark shows it again.
function fromAddress() {
  const query = new URLSearchParams(location.hash.slice(1));
  return [query.get("run") ?? NONE, query.get("beside") ?? NONE];
}

function toAddress() {
  const [run, beside] = chosen;
  history.replaceState(null, "", `#${new URLSearchParams({ run, ...(beside ? { beside } : {}) })}`);
}

async function pollRuns() {
  const answer = await list.ask("runs");
  if (answer === null) return;
  runs = answer.runs;
  const ids = runs.map((run) => run.id);
  if (!ids.includes(chosen[0])) chosen[0] = ids[0] ?? NONE;
  if (!ids.includes(chosen[1])) chosen[1] = NONE;
  whenChanged(empty, answer.where, (node) => fill(node,
    el("h2", {}, "No run here yet"),
    el("p", {}, "A run appears as soon as its first steps are on disk."),
    answer.attach.map(({ name, value }) => [el("p", {}, name), el("pre", {}, value)]),
    el("p", { class: "quiet" }, `Looked at and below ${answer.where.join(", ") || "no log directory"}.`)));
  pickers.forEach((picker, number) => options(picker, number));
  pickers[0].parentElement.hidden = ids.length === 0;
  pickers[1].parentElement.hidden = ids.length < 2;
}

function options(picker, number) {
  const items = runs.map((run) => el("option", { value: run.id }, run.name));
  fill(picker, number ? el("option", { value: NONE }, "nothing") : null, items);
  picker.value = chosen[number];
}

async function poll() {
  clearTimeout(timer);
  let fresh = [];
  if (!document.hidden) {
    try {
      await pollRuns();
      arrange();
      fresh = await Promise.all(columns.map(pollColumn));
      fill(status, "");
      status.classList.remove("lost");
    } catch {
      fill(status, "no answer from TensorBoard: was it ended?");
      status.classList.add("lost");
    }
  }
  timer = setTimeout(poll, EVERY_MS);
  // Outside: a fault of ours in drawing is the console's, and not TensorBoard's silence.
  if (fresh.some(Boolean)) draw();
}

async function pollColumn(column) {
  try {
    return await column.poll();
  } catch (error) {
    if (error instanceof TypeError) throw error;
    column.fail(error.message);
    return false;
  }
}

function arrange() {
  columns.forEach((column, number) => column.choose(chosen[number]));
  const shown = columns.filter((column) => column.run);
  place.classList.toggle("two", shown.length > 1);
  whenChanged(place, chosen, () => fill(place, shown.length ? shown.map((column) => column.node) : empty));
}

// Two runs are compared by eye: what both have is drawn to one scale.
function draw() {
  const drawn = columns.filter((column) => column.run && column.data);
  const charts = drawn.flatMap((column) => column.data.series.charts);
  const shared = {
    frame_s: Math.max(0, ...drawn.map((column) => column.data.series.steps?.frame_s ?? 0)),
    drawn: new Set(charts.filter((chart) => chart.lines.length).map((chart) => chart.key)),
    most: {},
  };
  for (const chart of charts) shared.most[chart.key] = Math.max(shared.most[chart.key] ?? 0, most(chart));
  for (const column of drawn) column.draw(shared);
}

pickers.forEach((picker, number) => picker.addEventListener("change", () => {
  chosen[number] = picker.value;
  toAddress();
  poll();
}));
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
onThemeChange(() => {
  draw();
  columns.forEach((column) => column.redraw());
});
poll();
