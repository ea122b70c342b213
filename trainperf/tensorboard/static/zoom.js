// A part of a picture: somebody drags across it, and the server draws what was chosen.

const LEAST_PX = 4;

// `choose(picture, range)`: `picture` has `data-first` and `data-last`; `range` is null for the whole.
export function zoomable(root, choose) {
  let begin = null;
  root.addEventListener("pointerdown", (event) => {
    const area = event.target.closest("[data-first] .area");
    if (!area || event.button) return;
    const mark = document.createElement("div");
    mark.className = "chosen";
    area.append(mark);
    begin = { area, mark, x: event.clientX };
    event.preventDefault();
  });
  document.addEventListener("pointermove", (event) => {
    if (!begin) return;
    const { left } = begin.area.getBoundingClientRect();
    begin.mark.style.left = `${Math.min(begin.x, event.clientX) - left}px`;
    begin.mark.style.width = `${Math.abs(event.clientX - begin.x)}px`;
  });
  document.addEventListener("pointerup", (event) => {
    if (!begin) return;
    const { area, mark, x } = begin;
    begin = null;
    mark.remove();
    if (Math.abs(event.clientX - x) < LEAST_PX) return;
    const { left, width } = area.getBoundingClientRect();
    const picture = area.closest("[data-first]");
    const [first, last] = [Number(picture.dataset.first), Number(picture.dataset.last)];
    const value = (at) => first + Math.min(1, Math.max(0, (at - left) / width)) * (last - first);
    choose(picture, [x, event.clientX].map(value).sort((a, b) => a - b));
  });
  root.addEventListener("dblclick", (event) => {
    const picture = event.target.closest("[data-first]");
    if (picture) choose(picture, null);
  });
}
