// SPDX-License-Identifier: MIT
// How report.html looks (light and dark, wide and narrow), and the script that shows a chart's
// values under the pointer. The page allows this script alone, by its hash.
#pragma once

namespace nibble {

constexpr const char* kReportStyle = R"(:root{color-scheme:light dark;--page:#f4f4f5;--card:#ffffff;
--text:#18181b;--soft:#52525b;--line:#e4e4e7;--good:#15803d;--bad:#be123c;--warn:#a16207;
--accent:#1d6fb8;--goodback:#dcfce7;--badback:#ffe4e6;--warnback:#fef9c3}
@media (prefers-color-scheme:dark){:root{--page:#0b0b0d;--card:#18181b;--text:#f4f4f5;
--soft:#a1a1aa;--line:#3f3f46;--good:#4ade80;--bad:#fb7185;--warn:#facc15;--accent:#60a5fa;
--goodback:#052e16;--badback:#4c0519;--warnback:#422006}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);
font:15px/1.5 system-ui,"Noto Sans","Noto Sans TC","Noto Sans CJK TC","PingFang TC","Microsoft JhengHei",sans-serif}
main{max-width:1120px;margin:0 auto;padding:20px 16px 48px}
h1{font-size:1.5rem;margin:0;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:32px 0 10px}
h3{font-size:.95rem;margin:0}
p{margin:.4em 0}
a{color:var(--accent)}
code,pre,.mono{font-family:ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;font-size:.85em}
pre{margin:0;white-space:pre-wrap;overflow-wrap:anywhere;background:var(--card);
border:1px solid var(--line);border-radius:10px;padding:12px}
.soft{color:var(--soft)}
.badge{display:inline-block;padding:1px 10px;border-radius:99px;font-size:.85rem;font-weight:600}
.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}
.badge.good{background:var(--goodback)}.badge.bad{background:var(--badback)}
.badge.warn{background:var(--warnback)}
header{display:flex;flex-wrap:wrap;gap:6px 12px;align-items:center}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:10px;margin-top:16px}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 12px;min-width:0}
.card b{display:block;font-size:1.25rem;line-height:1.3;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.card span{color:var(--soft);font-size:.8rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:12px}
.chart{position:relative;background:var(--card);border:1px solid var(--line);border-radius:10px;
overflow:hidden;margin:0}
.chart svg{display:block;width:100%;height:auto}
.chart .page{fill:none}
.tip{position:absolute;top:6px;right:8px;padding:2px 8px;border-radius:8px;background:var(--page);
border:1px solid var(--line);font-size:.78rem;font-variant-numeric:tabular-nums;text-align:right;
white-space:pre-line;pointer-events:none}
.tip:empty{display:none}
.wide{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:10px}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:7px 12px;border-top:1px solid var(--line);vertical-align:top}
tr:first-child>th,tr:first-child>td{border-top:0}
th{font-size:.8rem;color:var(--soft);font-weight:600}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.path{overflow-wrap:anywhere;min-width:180px}
.hash{overflow-wrap:anywhere;min-width:150px;max-width:330px}
.reply{white-space:pre-wrap;overflow-wrap:anywhere}
@media (min-width:641px){.replies table{table-layout:fixed}.replies th:first-child{width:26%}}
.why{color:var(--soft);font-size:.8rem}
.bar{height:6px;border-radius:3px;background:var(--line);min-width:90px;overflow:hidden;margin-top:6px}
.bar i{display:block;height:100%;background:var(--good)}
details{background:var(--card);border:1px solid var(--line);border-radius:10px;margin-top:10px}
summary{cursor:pointer;padding:9px 12px;font-weight:600}
details .wide{border:0;border-top:1px solid var(--line);border-radius:0 0 10px 10px}
ol{margin:0;padding-left:1.4em}
@media (max-width:640px){main{padding:14px 10px 32px}th,td{padding:6px 8px}
.replies table,.replies tbody,.replies tr,.replies td{display:block;width:100%}
.replies tr:first-child{display:none}
.replies tr{border-top:1px solid var(--line);padding:6px 0}.replies td{border:0;padding:3px 10px}
.replies td[data-label]::before{content:attr(data-label);display:block;font-size:.75rem;color:var(--soft)}}
@media print{body{background:#fff}.tip{display:none}}
)";

// No < and no & in it: the page is well-formed XML.
constexpr const char* kReportScript = R"(for (const chart of document.querySelectorAll('.chart')) {
  const svg = chart.querySelector('svg'), tip = chart.querySelector('.tip');
  const lines = Array.from(svg.querySelectorAll('[data-points]'), function (path) {
    const points = path.dataset.points.split(' ').filter(Boolean).map(function (p) {
      return p.split(',').map(Number);
    });
    return {name: path.dataset.name, points: points};
  });
  const show = function (event) {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    const found = [];
    for (const line of lines) {
      let best = null;
      for (const p of line.points) {
        if (best === null || Math.abs(best[0] - x) > Math.abs(p[0] - x)) best = p;
      }
      if (best !== null) found.push(line.name + ' ' + best[2] + ' (step ' + best[1] + ')');
    }
    tip.textContent = found.join('\n');
  };
  svg.addEventListener('pointermove', show);
  svg.addEventListener('pointerdown', show);
  svg.addEventListener('pointerleave', function () { tip.textContent = ''; });
}
)";

}  // namespace nibble
