// The page: which runs there are, which are shown, and when to ask again. Its parts come drawn from the server.

import { Source } from "./api.js";
import { Captures } from "./captures.js";
import { el, fill, parsed, whenChanged } from "./dom.js";
import { zoomable } from "./zoom.js";

const EVERY_MS = 3000;
const NONE = "";

const at = (id) => document.getElementById(id);
const status = at("status");
const pickers = [at("run"), at("beside")];
const captures = new Captures(at("captures"));
const [list, report, comparison] = [new Source(), new Source(), new Source()];
let runs = [];
let chosen = fromAddress();
let view = {};
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
  pickers.forEach((picker, number) => options(picker, number));
  pickers[0].parentElement.hidden = ids.length === 0;
  pickers[1].parentElement.hidden = ids.length < 2;
  if (ids.length) return;
  fill(at("report"), el("section", { class: "nothing" },
    el("h2", {}, "No run here yet"),
    el("p", {}, "A run appears as soon as its first steps are on disk."),
    answer.attach.map(({ name, value }) => [el("p", {}, name), el("pre", {}, value)]),
    el("p", { class: "soft" }, `Looked at and below ${answer.where.join(", ") || "no log directory"}.`)));
}

function options(picker, number) {
  const items = runs.map((run) => el("option", { value: run.id }, run.name));
  fill(picker, number ? el("option", { value: NONE }, "nothing") : null, items);
  picker.value = chosen[number];
}

async function poll() {
  clearTimeout(timer);
  if (!document.hidden) {
    try {
      await pollRuns();
      await Promise.all([pollReport(), pollComparison()]);
      fill(status, "");
      status.classList.remove("lost");
    } catch {
      fill(status, "no answer from TensorBoard: was it ended?");
      status.classList.add("lost");
    }
  }
  timer = setTimeout(poll, EVERY_MS);
}

async function pollReport() {
  const [run] = chosen;
  const asked = view;
  if (!run) return;
  const answer = await asking(report, at("report"), "run", { run, ...asked });
  // Somebody may have chosen another run or window while this one was on its way.
  if (!answer || run !== chosen[0] || asked !== view) return;
  fill(at("report"), parsed(answer.html));
  ranks(answer.ranks);
  at("whole").hidden = asked.first === undefined;
  captures.show(run, answer.captures);
}

async function pollComparison() {
  const [after, before] = chosen;
  if (!before || before === after) return fill(at("comparison"));
  const answer = await asking(comparison, at("comparison"), "compare", { before, after });
  if (answer && chosen[0] === after && chosen[1] === before) fill(at("comparison"), parsed(answer.html));
  return null;
}

// The answer; where there is none, why, in its place.
async function asking(source, node, route, query) {
  try {
    return await source.ask(route, query);
  } catch (error) {
    if (error instanceof TypeError) throw error;
    source.forget();
    fill(node, el("section", {}, el("p", { class: "warn" }, error.message)));
    return null;
  }
}

function ranks(numbers) {
  const picker = at("rank");
  picker.parentElement.hidden = numbers.length < 2;
  whenChanged(picker, numbers, () => fill(picker, el("option", { value: NONE }, "the mean of all ranks"),
    numbers.map((rank) => el("option", { value: rank }, `rank ${rank}`))));
  picker.value = view.rank ?? NONE;
}

function look(change) {
  view = Object.fromEntries(Object.entries({ ...view, ...change }).filter(([, value]) => value !== undefined));
  return poll();
}

pickers.forEach((picker, number) => picker.addEventListener("change", () => {
  chosen[number] = picker.value;
  view = {};
  [report, comparison].forEach((source) => source.forget());
  toAddress();
  poll();
}));
at("rank").addEventListener("change", () => look({ rank: at("rank").value === NONE ? undefined : at("rank").value }));
at("whole").addEventListener("click", () => look({ first: undefined, last: undefined }));
zoomable(at("report"), (_, range) => look(range
  ? { first: Math.floor(range[0]), last: Math.max(Math.floor(range[0]), Math.ceil(range[1]) - 1) }
  : { first: undefined, last: undefined }));
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
poll();
