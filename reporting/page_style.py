"""The style sheet of the page: fonts of the system, light and dark as the reader's system is, any width from 320
pixels."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --ground: #f7f7f5; --card: #ffffff; --ink: #1c2126; --soft: #5b6570; --line: #e2e4e6; --track: #eceeef;
  --accent: #14785a; --other: #9aa8b8; --good: #14785a; --running: #1f5fbf; --warning: #9a5b00; --bad: #b3261e;
  --unknown: #5b6570;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #131619; --card: #1b1f23; --ink: #e6e8ea; --soft: #9ba5af; --line: #2d3339; --track: #282e34;
    --accent: #45b38d; --other: #5f7085; --good: #5cc9a3; --running: #85b4f7; --warning: #e3a650; --bad: #f28078;
    --unknown: #9ba5af;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; padding: 2.5rem 1.25rem 4rem; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere;
}
main, header, footer { max-width: 70rem; margin: 0 auto; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .25rem; letter-spacing: -.01em; }
h2 { font-size: 1.1rem; margin: 0 0 .75rem; }
h3 { font-size: .95rem; margin: 1.25rem 0 .4rem; }
p { margin: .25rem 0; }
small, .soft { color: var(--soft); }
small { font-size: .85em; }
code { font: .9em ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.eyebrow { color: var(--soft); font-size: .8rem; letter-spacing: .06em; text-transform: uppercase; margin: 0 0 .5rem; }
section, .verdict, .tile {
  background: var(--card); border: 1px solid var(--line); border-radius: .6rem; min-width: 0;
}
section { padding: 1.25rem 1.4rem 1.4rem; margin-top: 1.1rem; }
.verdict { border-left: .4rem solid var(--mood); padding: .9rem 1.2rem; margin-top: 1.4rem; display: flex; gap: .9rem; }
.verdict .sign {
  flex: none; width: 1.9rem; height: 1.9rem; border-radius: 50%; color: var(--card); background: var(--mood);
  font-weight: 700; text-align: center; line-height: 1.9rem;
}
.verdict strong { font-size: 1.15rem; line-height: 1.9rem; color: var(--mood); }
.verdict > div { min-width: 0; flex: 1; }
.verdict ul { margin: .1rem 0 0; padding: 0; list-style: none; color: var(--soft); }
.good { --mood: var(--good); } .running { --mood: var(--running); } .warning { --mood: var(--warning); }
.bad { --mood: var(--bad); } .unknown { --mood: var(--unknown); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .8rem; margin-top: 1.1rem; }
.tile { padding: .8rem 1rem; }
.tile b { display: block; font-size: 1.3rem; line-height: 1.25; font-weight: 650; letter-spacing: -.01em; }
.tile span { color: var(--soft); font-size: .85rem; }
.tile.bad b { color: var(--bad); }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr)); gap: 0 2.4rem; }
.columns > div { min-width: 0; } .columns h3 { margin-top: .3rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; vertical-align: top; font-weight: normal; }
thead th { color: var(--soft); font-size: .8rem; border-bottom: 1px solid var(--line); }
.number { text-align: right; white-space: nowrap; padding-right: 0; }
.bars th { width: 42%; } .bars .bar-cell { padding-top: .62rem; } .bars .number { width: 7rem; }
.reasons .number { padding-right: .9rem; width: 5.5rem; } .reasons .bar-cell { width: 8rem; padding-top: .62rem; }
.track { display: block; height: .6rem; border-radius: .3rem; background: var(--track); overflow: hidden; }
.fill { display: block; height: 100%; min-width: 2px; border-radius: .3rem; background: var(--accent); }
.fill.other { background: var(--other); } .fill.failed { background: var(--bad); }
.fill.running { background: var(--running); }
.progress { margin-top: .6rem; }
.chart { margin: .9rem 0 .4rem; }
.unit { color: var(--soft); font-size: .78rem; margin: 0 0 .5rem 4rem; }
.plot { position: relative; height: 11rem; margin: 0 0 0 4rem; }
.plot svg { position: absolute; inset: 0; width: 100%; height: 100%; overflow: visible; }
.plot .value { fill: var(--accent); } .plot .failed { fill: var(--bad); }
.plot .gridline { position: absolute; left: 0; right: 0; border-bottom: 1px solid var(--line); }
.plot svg ~ span {
  position: absolute; right: calc(100% + .5rem); transform: translateY(50%); color: var(--soft); font-size: .78rem;
  line-height: 1.1; width: 3.5rem; text-align: right;
}
.below {
  display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 1rem; margin: .35rem 0 0 4rem;
  color: var(--soft); font-size: .78rem;
}
.clips { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); gap: 1.4rem 1.8rem; }
.clip { min-width: 0; border-top: 1px solid var(--line); padding-top: .8rem; }
.clip h3 { margin: 0; }
.clip .labels { color: var(--soft); font-size: .85rem; }
.strip { margin: .5rem 0 0; }
.strip .frames { display: grid; grid-template-columns: repeat(4, 1fr); gap: .25rem; align-items: center; }
.strip img { display: block; width: 100%; height: auto; border-radius: .2rem; background: var(--track); }
.strip figcaption { font-size: .8rem; color: var(--soft); margin-bottom: .2rem; }
.strip figcaption b { color: var(--ink); font-weight: 600; }
footer { margin-top: 1.6rem; color: var(--soft); font-size: .85rem; }
@media (max-width: 36rem) {
  body { padding: 1.25rem .75rem 2rem; } section { padding: 1rem; } h1 { font-size: 1.5rem; }
  .unit, .plot, .below { margin-left: 3.2rem; } .plot svg ~ span { width: 2.8rem; }
  .bars .number { width: 5.5rem; } .reasons .bar-cell { display: none; }
}
@media print { body { background: none; } section, .clip { break-inside: avoid; } }
"""
