#pragma once
// How the page looks: on wide screens, phones and paper, light and dark.

namespace athanor::inline report {

inline constexpr const char* kPageStyle = R"css(
:root{--paper:#fff;--card:#fff;--ink:#1d2127;--pale:#5a6068;--rule:#d9dde2;--heat:#b8400a;--tip:#1d2127;--tip-ink:#fff}
@media (prefers-color-scheme:dark){:root{--paper:#15181c;--card:#1b1f24;--ink:#e3e5e8;--pale:#a3aab2;--rule:#373d44;--heat:#ffa15c;--tip:#e3e5e8;--tip-ink:#15181c}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1360px;padding:0 20px 48px;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
header{display:flex;flex-wrap:wrap;gap:8px 32px;align-items:baseline;justify-content:space-between;padding-top:20px}
h1{font-size:1.5rem;margin:0;overflow-wrap:anywhere} h2{font-size:1.15rem;margin:36px 0 10px;padding-bottom:4px;border-bottom:1px solid var(--rule)} h3{font-size:1rem;margin:0;display:inline;overflow-wrap:anywhere}
.choice{border:0;margin:0;padding:0;display:flex;gap:14px;align-items:center} .choice legend{float:left;margin-right:14px;color:var(--pale)} .choice label{cursor:pointer;display:inline-flex;gap:5px;align-items:center;min-height:32px}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,320px),1fr));gap:18px}
figure{margin:0;padding:12px 14px;background:var(--card);border:1px solid var(--rule);border-radius:8px;min-width:0} figure.wide{grid-column:1/-1}
.unit,.note,footer{color:var(--pale);font-size:.87rem} .unit{margin-left:10px} .note{margin:6px 0}
.chart{display:block;width:100%;height:auto;font:12px system-ui,sans-serif;touch-action:pan-y}
.chart text{fill:var(--ink)} .chart .pale{fill:var(--pale)} .chart .small{font-size:11px} .grid .chart .grid,.chart .grid{stroke:var(--rule);display:inline}
.chart .line{fill:none;stroke-width:1.7;stroke-linejoin:round} .chart .faint{fill:none;stroke-width:.7;stroke-opacity:.35} .chart .band{fill-opacity:.17} .chart .bar{stroke-width:1.2} .chart .area{fill-opacity:.85;stroke:var(--card);stroke-width:.6}
.chart .level{stroke:var(--pale);stroke-dasharray:5 4} .chart .heat{fill:var(--heat)} .chart .mark{stroke:var(--card);stroke-width:.8} .chart .cursor{stroke:var(--pale);stroke-width:1}
.pictures:focus-visible{outline:2px solid #2f7fd6;outline-offset:3px}
.axis{display:none} [data-axis=tokens] .axis.tokens,[data-axis=steps] .axis.steps,[data-axis=time] .axis.time{display:block}
.slim{display:none}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 18px;margin:6px 0 4px;padding:0;font-size:.87rem} .legend li{overflow-wrap:anywhere} .legend svg{margin-right:6px}
.scroll{overflow-x:auto} table{border-collapse:collapse;font-size:.87rem;margin:6px 0;font-variant-numeric:tabular-nums} caption{text-align:left;color:var(--pale);padding:2px 0}
th,td{min-width:3em;padding:4px 14px 4px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule)} thead th{color:var(--pale);font-weight:500;vertical-align:bottom} tbody th{font-weight:500} td.pale{color:var(--pale)}
details{margin-top:6px} summary{cursor:pointer;color:var(--pale);font-size:.87rem;min-height:24px}
#pointer{position:fixed;z-index:9;pointer-events:none;background:var(--tip);color:var(--tip-ink);padding:6px 10px;border-radius:6px;font-size:.82rem;max-width:min(420px,92vw);white-space:pre-line;font-variant-numeric:tabular-nums}
footer{margin-top:40px}
@media (max-width:900px){.broad{display:none} .slim{display:block;max-width:600px}}
@media (max-width:640px){body{padding:0 12px 32px} figure{padding:10px 8px}}
@media print{:root{--paper:#fff;--card:#fff;--ink:#000;--pale:#444;--rule:#bbb;--heat:#b8400a} body{max-width:none;font-size:11px;padding:0} figure,tr{break-inside:avoid} h2{break-after:avoid} .choice,details,#pointer{display:none} .grid{grid-template-columns:1fr 1fr}}
)css";

}  // namespace athanor::inline report
