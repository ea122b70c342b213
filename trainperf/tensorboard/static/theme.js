// The colours of the style sheet, for Plotly, which cannot read them itself.

const dark = matchMedia("(prefers-color-scheme: dark)");

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export function onThemeChange(redraw) {
  dark.addEventListener("change", redraw);
}

export function isDark() {
  return dark.matches;
}

// A colour with some of what lies behind it.
export function faint(hex, share) {
  const [r, g, b] = [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16));
  return `rgba(${r},${g},${b},${share})`;
}

export const CONFIG = { displayModeBar: false, displaylogo: false, responsive: true, doubleClick: false, doubleClickDelay: 400, showTips: false };

export function layout(extra = {}) {
  const axis = {
    gridcolor: colour("grid"), linecolor: colour("grid"), zeroline: false, automargin: true,
    tickfont: { color: colour("quiet"), size: 11 },
  };
  const titled = (own, base = {}) => ({ ...axis, ...base, ...own, title: { font: { color: colour("quiet"), size: 11 }, ...own?.title } });
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: colour("text") },
    margin: { l: 52, r: 14, t: 8, b: 34 },
    hovermode: "x unified",
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { size: 12, color: colour("text") }, align: "left", namelength: -1 },
    dragmode: "zoom", showlegend: false,
    ...extra,
    xaxis: titled(extra.xaxis, { showgrid: false, tickformat: ",d" }),
    yaxis: titled(extra.yaxis, { fixedrange: true, rangemode: "tozero" }),
    ...(extra.yaxis2 ? { yaxis2: titled(extra.yaxis2, { fixedrange: true }) } : {}),
  };
}
