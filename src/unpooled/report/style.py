"""The one style sheet of reports, cards and live pages: readable at 360 px, on a laptop and on paper."""

CSS = """
:root{--ink:#1f2328;--soft:#57606a;--line:#d8dee4;--shade:#f4f6f9;--blue:#2b5a9b;--warn:#9a3412;--good:#1a6b3c}
*{box-sizing:border-box}
html{color-scheme:light;-webkit-text-size-adjust:100%}
body{font:16px/1.55 system-ui,-apple-system,"Segoe UI",sans-serif;color:var(--ink);background:#fff;max-width:60rem;margin:0 auto;padding:1.5rem 1rem 4rem;overflow-wrap:break-word}
header{border-bottom:1px solid var(--line);padding-bottom:1rem;margin-bottom:1rem}
h1{font-size:1.75rem;line-height:1.2;margin:0 0 .3rem} h2{font-size:1.25rem;line-height:1.3;margin:2.6rem 0 .5rem} h3{font-size:1rem;margin:1.4rem 0 .3rem}
p{max-width:44rem;margin:.5rem 0} .lead,figcaption,caption,.soft{color:var(--soft)}
a{color:var(--blue)} a:focus-visible,button:focus-visible,summary:focus-visible,.wide:focus-visible{outline:3px solid #1f6feb;outline-offset:2px;border-radius:2px}
.skip{position:absolute;left:-100vw} .skip:focus{left:1rem;top:.5rem;background:#fff;padding:.4rem .8rem;z-index:2}
nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;padding:0;margin:.8rem 0 0;font-size:.92rem}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(8.8rem,1fr));gap:.6rem;margin:1rem 0;padding:0}
.facts div{background:var(--shade);border-radius:8px;padding:.55rem .8rem;font-size:.86rem;color:var(--soft)}
.facts dt{color:var(--soft)} .facts dd{margin:0;font-size:1.15rem;font-weight:600;color:var(--ink)}
.wide{overflow-x:auto;position:relative} table{border-collapse:collapse;font-size:.9rem;min-width:min(100%,24rem)}
caption{text-align:left;padding:.3rem 0;caption-side:top}
th,td{text-align:left;padding:.32rem .8rem .32rem 0;border-bottom:1px solid var(--line);vertical-align:top}
thead th{color:var(--soft);font-weight:600;vertical-align:bottom} tbody th{font-weight:500} td.n,th.n{text-align:right;font-variant-numeric:tabular-nums} td.n{white-space:nowrap} .roomy table{min-width:42rem}
code,pre{font-size:.85em;font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace} pre{background:var(--shade);padding:.8rem;overflow-x:auto;border-radius:8px}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,25rem),1fr));gap:1rem 2rem;align-items:start}
figure{margin:.8rem 0;min-width:0} figcaption{font-size:.9rem;margin-top:.2rem;max-width:44rem} svg{display:block;max-width:100%;height:auto} svg.big{max-width:none}
.mark{border-left:4px solid var(--warn);background:#fff7f2;padding:.5rem .8rem;margin:.7rem 0;max-width:48rem} .ok{border-left-color:var(--good);background:#f2faf5}
.tag{display:inline-block;border:1px solid currentColor;border-radius:99px;padding:0 .55rem;font-size:.8rem;white-space:nowrap} .warn{color:var(--warn)} .good{color:var(--good)}
details{margin:.5rem 0} summary{cursor:pointer;color:var(--blue)}
ul.plain{padding-left:1.1rem;margin:.4rem 0} ul.plain li{margin:.2rem 0}
@media (max-width:30rem){body{font-size:15px;padding-top:1rem} h1{font-size:1.45rem} th,td{padding-right:.6rem}}
@media print{body{max-width:none;font-size:10.5pt;padding:0} nav,.skip{display:none} h2{break-after:avoid} figure,table,.facts{break-inside:avoid} .wide{overflow:visible} svg.big{max-width:100%} a{color:inherit;text-decoration:none}}
@media (prefers-reduced-motion:no-preference){.live{transition:opacity .2s}}
"""
