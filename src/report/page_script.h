#pragma once
// The script of the page: it changes the horizontal axis, and shows the values under the pointer. Texts are only ever
// set as text.

namespace athanor::inline report {

inline constexpr const char* kPageScript = R"js(
'use strict';
const tip = document.getElementById('pointer');
const data = new Map();
function dataOf(figure) {
  const id = figure.dataset.values;
  if (!data.has(id)) data.set(id, JSON.parse(document.getElementById(id).textContent));
  return data.get(id);
}
function pair(text) { return text.split(' ').map(Number); }
function duration(s) {
  const m = Math.floor(s / 60), h = Math.floor(m / 60), two = n => String(n).padStart(2, '0');
  return h > 0 ? `${h}:${two(m % 60)}:${two(Math.floor(s % 60))}` : `${m}:${two(Math.floor(s % 60))}`;
}
function nearest(list, x) {
  let low = 0, high = list.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < x) low = middle + 1; else high = middle;
  }
  return low > 0 && Math.abs(list[low - 1] - x) <= Math.abs(list[low] - x) ? low - 1 : low;
}
function place(points, i) {
  const parts = [`step ${points.steps[i].toLocaleString('en')}`];
  if (points.tokens[i] !== null) parts.push(`${points.tokens[i].toLocaleString('en')} tokens`);
  if (points.time[i] !== null) parts.push(duration(points.time[i]));
  return parts.join(', ');
}
function cursor(svg, at) {
  let line = svg.querySelector('.cursor');
  const [left, top, , height] = pair(svg.dataset.box);
  if (!line) {
    line = document.createElementNS('http://www.w3.org/2000/svg', 'line');
    line.setAttribute('class', 'cursor');
    svg.append(line);
  }
  for (const [name, value] of Object.entries({x1: at, x2: at, y1: top, y2: top + height})) line.setAttribute(name, value);
}
function tell(figure, svg, x, share) {
  const content = dataOf(figure), kind = svg.dataset.axis, lines = [];
  let at = null, step = null;
  if (content.rows) {
    const points = content.points, i = points[kind].findIndex(end => x <= end);
    const row = Math.floor(share * content.rows.length);
    if (i < 0 || !content.rows[row]) return null;
    at = points[kind][i];
    lines.push('mean up to ' + place(points, i), `${content.row} ${row}: ${content.rows[row][i]}`);
  } else {
    for (const series of content.series) {
      const i = nearest(series.points[kind], x);
      if (at === null) { at = series.points[kind][i]; step = series.points.steps[i]; lines.push(place(series.points, i)); }
      const other = series.points.steps[i] === step ? '' : `, step ${series.points.steps[i].toLocaleString('en')}`;
      lines.push(`${series.name}${other}: ${series.points.y[i]}`);
    }
  }
  return {at, text: lines.join('\n')};
}
function show(figure, svg, x, share, where) {
  const told = tell(figure, svg, x, share);
  if (!told) return hide();
  const [low, high] = pair(svg.dataset.x), [left, , width] = pair(svg.dataset.box);
  cursor(svg, left + (told.at - low) / (high - low) * width);
  tip.textContent = told.text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(where.x + 14, innerWidth - box.width - 6)) + 'px';
  tip.style.top = (where.y + 18 + box.height > innerHeight ? Math.max(4, where.y - box.height - 12) : where.y + 18) + 'px';
}
function hide() {
  tip.hidden = true;
  for (const line of document.querySelectorAll('.cursor')) line.remove();
}
function visible(figure) {
  return [...figure.querySelectorAll('svg.chart')].find(svg => svg.getClientRects().length > 0);
}
function attach() {
  data.clear();
  for (const pictures of document.querySelectorAll('.pictures')) {
    const figure = pictures.closest('figure');
    let index = null;
    pictures.addEventListener('pointermove', event => {
      const svg = visible(figure);
      if (!svg) return;
      const rect = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / rect.width;
      const [left, top, width, height] = pair(svg.dataset.box), [low, high] = pair(svg.dataset.x);
      const px = (event.clientX - rect.left) * scale, py = (event.clientY - rect.top) * scale;
      if (px < left - 6 || px > left + width + 6) return hide();
      show(figure, svg, low + (px - left) / width * (high - low), (py - top) / height, {x: event.clientX, y: event.clientY});
    });
    pictures.addEventListener('pointerleave', hide);
    pictures.addEventListener('blur', hide);
    pictures.addEventListener('keydown', event => {
      const move = {ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -1e9, End: 1e9}[event.key];
      const svg = visible(figure), content = dataOf(figure);
      if (move === undefined || !svg || !content.series || content.series.length === 0) return;
      event.preventDefault();
      const list = content.series[0].points[svg.dataset.axis];
      index = Math.max(0, Math.min(list.length - 1, (index ?? 0) + move));
      const rect = svg.getBoundingClientRect();
      show(figure, svg, list[index], 0, {x: rect.left + rect.width / 2, y: rect.top + rect.height / 2});
    });
  }
}
attach();
for (const input of document.querySelectorAll('input[name=axis]')) {
  if (input.checked) document.body.dataset.axis = input.value;
  input.addEventListener('change', () => { hide(); document.body.dataset.axis = input.value; });
}
)js";

// What a page of `athanor report --live` has in addition: it looks for a new version, and replaces its content.
inline constexpr const char* kLiveScript = R"js(
const foot = document.querySelector('footer'), made = document.createElement('span'), state = document.createElement('span');
made.textContent = foot.textContent;
state.setAttribute('role', 'status');
foot.replaceChildren(made, ' ', state);
function openParts() { return [...document.querySelectorAll('main details')].map(part => part.open); }
async function renew() {
  const answer = await fetch('./', {cache: 'no-store'});
  const page = new DOMParser().parseFromString(await answer.text(), 'text/html'), main = page.querySelector('main');
  if (!answer.ok || !main) return page.querySelector('p')?.textContent ?? 'The server has no page.';
  const open = openParts();
  document.querySelector('main').replaceWith(document.adoptNode(main));
  [...document.querySelectorAll('main details')].forEach((part, i) => { part.open = Boolean(open[i]); });
  made.textContent = page.querySelector('footer').textContent;
  document.title = page.title;
  document.body.dataset.live = page.body.dataset.live;
  attach();
  return '';
}
async function look() {
  try {
    const answer = await fetch('version', {cache: 'no-store'});
    const version = (await answer.text()).trim();
    // Not while a reader looks at values: the pointer would lose them.
    const isNew = version !== document.body.dataset.live && tip.hidden;
    const failure = !answer.ok ? version : isNew ? await renew() : '';
    state.textContent = failure ? `This is the last state: ${failure}` : 'Live: looks for new steps every 5 seconds.';
  } catch {
    state.textContent = 'The server does not answer any more: this is its last state.';
  }
}
state.textContent = 'Live: looks for new steps every 5 seconds.';
setInterval(look, 5000);
)js";

}  // namespace athanor::inline report
