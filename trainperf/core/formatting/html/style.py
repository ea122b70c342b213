"""The style sheet of the pages: light and dark by the reader's preference, and on paper.

Classes by colour: `f`, `b`, `d` and a number for the phases in their order; `s`, `g`, `k` and a
number for lines.
"""

from trainperf.core.formatting.html.palette import COLOURS, phase_variable, variables


_RULES = """
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1.2rem 1rem 2rem; background: var(--page);
  color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.3; margin: .2rem 0 .5rem; max-width: 62ch; text-wrap: pretty;
  overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 0 0 .5rem; }
h3 { font-size: .95rem; margin: 1.1rem 0 .3rem; overflow-wrap: anywhere; }
h2 + h3, section > h3:first-child { margin-top: 0; }
p, ul { margin: .4rem 0; overflow-wrap: anywhere; }
ul { padding-left: 1.2rem; }
section, header { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 1rem 1.2rem; margin: 0 0 .9rem; }
.soft { color: var(--quiet); } .small { font-size: .85rem; }
.good { color: var(--good); } .bad { color: var(--bad); } .warn { color: var(--warn); }
.absent { color: var(--quiet); font-style: italic; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; min-width: min(100%, 26rem); font-variant-numeric: tabular-nums;
  font-size: .9rem; }
th, td { text-align: right; padding: .22rem .6rem; border-bottom: 1px solid var(--grid);
  vertical-align: top; }
tr:last-child > td { border-bottom: 0; }
th { color: var(--quiet); font-weight: 500; border-bottom-color: var(--line); }
th:first-child, td:first-child { padding-left: 0; }
th.text, td.text { text-align: left; }
td.text { overflow-wrap: break-word; }
td.text:is(:first-child, :last-child) { overflow-wrap: anywhere; min-width: 7rem; }
td:not(.text) { white-space: nowrap; }
code { font: .88em/1.5 ui-monospace, monospace; overflow-wrap: anywhere; }
td code { white-space: nowrap; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr));
  gap: .5rem 1.2rem; margin: .9rem 0 0; }
.facts > div { min-width: 0; }
.facts dt { color: var(--quiet); font-size: .8rem; }
.facts dd { margin: 0; font-size: 1.05rem; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
.finding { background: var(--tint); border-left: 4px solid var(--phase-other); border-radius: 6px;
  padding: .6rem .9rem; margin: .6rem 0; break-inside: avoid; }
.finding.high { border-left-color: var(--phase-data_wait); }
.finding.medium { border-left-color: var(--phase-h2d); }
.finding p { margin: .25rem 0; }
.labelled { margin: .3rem 0 0; font-size: .9rem; }
.labelled > div { display: grid; grid-template-columns: 8rem minmax(0, 1fr); gap: .1rem .6rem; }
.labelled dt { color: var(--quiet); } .labelled dd { margin: 0; overflow-wrap: anywhere; }
.gain { color: var(--good); font-weight: 600; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr));
  gap: 1rem 2rem; }
.grid > div { min-width: 0; break-inside: avoid; }
.plot { display: grid; grid-template-columns: 6.4rem minmax(0, 1fr); margin: .4rem 0 .2rem;
  break-inside: avoid; }
.plot.lanes { margin: .4rem 0 .5rem; }
.plot.bare { grid-template-columns: minmax(0, 1fr); }
.area { position: relative; }
.plot svg { display: block; width: 100%; height: 100%; overflow: visible; }
.up, .across { position: relative; color: var(--quiet); font-size: .74rem; line-height: 1;
  font-variant-numeric: tabular-nums; }
.up span { position: absolute; right: .5rem; transform: translateY(-50%); white-space: nowrap; }
.across { grid-column: -2; height: 1.5rem; }
.across span { position: absolute; top: .4rem; transform: translateX(-50%); white-space: nowrap; }
.across span.first { transform: none; } .across span.last { transform: translateX(-100%); }
.axis-name { grid-column: -2; color: var(--quiet); font-size: .74rem; text-align: center;
  margin: 0; }
.plot .grid-line { stroke: var(--grid); } .plot .base { stroke: var(--line); }
.plot path, .plot line { vector-effect: non-scaling-stroke; }
.plot .curve, .plot .dot { fill: none; } .plot .curve { stroke-width: 1.6; stroke-linejoin: round; }
.plot .hover { fill: transparent; } .plot .hover:hover { fill: var(--text); fill-opacity: .12; }
.plot .dot { stroke-linecap: round; }
.plot .mark { stroke: var(--text); stroke-width: 1; stroke-dasharray: 2 3; fill: none; }
.label { position: absolute; color: var(--text); font-size: .74rem; line-height: 1.15;
  white-space: nowrap; padding: 0 .2em; border-radius: 3px;
  background: color-mix(in srgb, var(--card) 78%, transparent); }
.label.left { transform: translateX(calc(-100% - .4em)); }
.label.right { transform: translateX(.4em); }
.plot .band { stroke: none; fill-opacity: .18; }
.plot .event { fill: var(--line-5); }
.plot .slowest { stroke: var(--text); stroke-width: 1; stroke-opacity: .45; }
.plot .roof { stroke: var(--text); stroke-opacity: .7; } .plot .clear { stroke-opacity: .75; }
.key.kink { height: .15em; background: var(--quiet); margin-bottom: .25em; }
.keys { display: flex; flex-wrap: wrap; gap: .1rem 1rem; margin: .2rem 0; color: var(--quiet);
  font-size: .82rem; padding: 0; list-style: none; }
.key { display: inline-block; width: .7em; height: .7em; border-radius: 2px; margin-right: .35em; }
.key.dot { border-radius: 50%; }
.meter { display: inline-block; height: .7em; border-radius: 2px; }
table:has(.meter) { width: 100%; } td:has(> .meter) { width: 55%; white-space: nowrap; }
td:has(> .aside) { width: 34%; }
.forest { position: relative; height: 1.1rem; min-width: 9rem; }
table:has(.forest) { width: 100%; } td:has(> .forest) { width: 30%; }
table:has(.spot) td.text { white-space: nowrap; }
.forest span { position: absolute; }
.forest .tick { transform: translateX(-50%); font-size: .74rem; }
.forest .unity { top: -.3rem; bottom: -.3rem; border-left: 1px dashed var(--quiet); }
.forest .reach { top: .32rem; height: .46rem; border-radius: .23rem; min-width: 2px; opacity: .5; }
.forest .spot { top: .35rem; width: .4rem; height: .4rem; margin-left: -.2rem;
  border-radius: 50%; }
.forest .good { background: var(--good); } .forest .bad { background: var(--bad); }
.forest .even { background: var(--quiet); }
.forest .ring { background: none; border: 1.5px solid var(--quiet); }
.plot .range { fill: var(--text); fill-opacity: .07; }
footer { color: var(--quiet); font-size: .82rem; overflow-wrap: anywhere; }
@media (max-width: 40rem) { body { padding: .6rem .5rem; } section, header { padding: .8rem .8rem; }
  .labelled > div { grid-template-columns: minmax(0, 1fr); }
  h1 { font-size: 1.25rem; } :is(td, th):has(> .aside), .tick.fine { display: none; }
  table:has(.forest) tr > :is(:nth-child(2), :nth-child(3)) { display: none; }
  table:has(.spot) td.text { white-space: normal; }
  .forest { min-width: 6rem; } td code { white-space: normal; }
  .plot { grid-template-columns: 5.4rem minmax(0, 1fr); }
  .plot.lanes { margin: .4rem 0 .5rem; }
.plot.bare { grid-template-columns: minmax(0, 1fr); } th, td { padding: .2rem .35rem; } }
@media print { :root { --page: #fff; --card: #fff; --tint: #fff; --text: #000; --quiet: #444;
    --line: #bbb; --grid: #ddd; }
  @page { margin: 14mm; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  :root { font-size: 11.5px; } body { font-size: 11.5px; max-width: none; padding: 0; }
  section, header { border: 0; padding: 0; margin: 0 0 1.2rem; }
  h2, h3 { break-after: avoid; } tr { break-inside: avoid; }
  .scroll { overflow: visible; } th, td { padding: .2rem .5rem; } }
"""


def _coloured(place: int) -> str:
    phase, line = f"var({phase_variable(place)})", f"var(--line-{place})"
    return (
        f".f{place} {{ fill: {phase}; }} .b{place} {{ background: {phase}; }} "
        f".d{place} {{ stroke: {phase}; }} .s{place} {{ stroke: {line}; }} "
        f".g{place} {{ fill: {line}; }} .k{place} {{ background: {line}; }}\n"
    )


STYLE = variables() + _RULES + "".join(map(_coloured, range(COLOURS)))
"""For every page."""
