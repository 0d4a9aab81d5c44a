// The dashboard: requests new data from the service once per second and draws the data. All state
// of the page comes from the service. A hidden or paused page sends no requests. If the service
// needs a token, the page shows a form for the token and keeps the token only in memory.
// SPDX-License-Identifier: Apache-2.0
'use strict';

const SAMPLES_MAX = 300;
const DECISIONS_MAX = 40;
const TICK_MS = 1000;
// Colours that colour-blind people can distinguish. The legend also names each line.
const COLOURS = ['#2f7de1', '#e08a1e', '#27a065', '#b04fd0', '#d2433b', '#12a5b8', '#8c8c3a', '#7a6ff0'];

const $ = (selector) => document.querySelector(selector);
const number = (value) => value.toLocaleString('en-US');
const page = {samples: [], next: 0, decisions: [], nextDecision: 0, chosen: null, paused: false, token: '', charts: {}};

function element(tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function row(cells) {
  const tr = element('tr');
  for (const cell of cells) {
    if (cell instanceof Node) {
      const td = element('td');
      td.append(cell);
      tr.append(td);
    } else if (typeof cell === 'number') {
      tr.append(element('td', number(cell), 'n'));
    } else if (Array.isArray(cell)) {
      tr.append(element('td', cell[0], cell[1]));
    } else {
      tr.append(element('td', cell));
    }
  }
  return tr;
}

async function ask(path) {
  const headers = page.token ? {Authorization: `Bearer ${page.token}`} : {};
  const reply = await fetch(path, {cache: 'no-store', headers});
  if (reply.status === 401 || reply.status === 403) askForToken((await reply.json()).error);
  if (!reply.ok) throw new Error(`${path}: ${reply.status}`);
  return reply.json();
}

// The page sends no requests until the user has sent the form.
function askForToken(error) {
  if (!$('#login').hidden) return;
  $('#refused').textContent = page.token ? error : '';
  page.token = '';
  $('#login').hidden = false;
}

const kindName = (kind) => kind.replaceAll('_', ' ');
const held = (worker, tier) =>
    worker.groups.reduce((sum, group) => sum + (group.tiers[tier] ? group.tiers[tier].held : 0), 0);

function lag(seconds) {
  if (seconds === null) return '–';
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  return seconds < 120 ? `${seconds.toFixed(1)} s` : `${Math.round(seconds / 60)} min`;
}

// The share of the sampled blocks that a hit can use, and the cause that prevents hits.
function reuseCell(reuse) {
  const share = reuse.usable_share === null ? '' : `${Math.round(100 * reuse.usable_share)} % usable`;
  const named = reuse.cause !== 'none' && reuse.cause !== 'not_enough_data';
  const cause = kindName(reuse.cause) + (reuse.group === null ? '' : `: group ${reuse.group}`);
  const text = reuse.cause === 'none' ? share : [cause, share].filter(Boolean).join(', ');
  const span = element('span', text, named ? 'tag miss' : 'muted');
  span.title = reuse.explanation;
  return span;
}

function showFleet(state) {
  const synced = state.workers.filter((worker) => worker.state === 'synced').length;
  const compared = state.routing.compared;
  const totals = [
    ['Workers synced', `${synced} of ${state.workers.length}`],
    ['Requests routed', number(state.routing.decisions)],
    ['Queries answered', number(state.queries)],
    ['Blocks on GPUs', number(state.workers.reduce((sum, worker) => sum + held(worker, 'GPU'), 0))],
    ['Predictions met', compared ? `${(100 * state.routing.equal / compared).toFixed(1)} %` : '–'],
  ];
  $('#totals').replaceChildren(...totals.map(([name, value]) => {
    const box = element('div');
    box.append(element('dt', name), element('dd', value));
    return box;
  }));
  $('#workers tbody').replaceChildren(...state.workers.map((worker) => row([
    worker.model ? `${worker.name} (${worker.model})` : worker.name,
    stateCell(worker), [lag(worker.event_age_seconds), 'n'],
    worker.batches, worker.lost, held(worker, 'GPU'), held(worker, 'CPU'),
    worker.load.active_prefill_tokens,
    worker.scheme === 'matched' ? 'matched' : `${worker.scheme}: ${worker.scheme_reason}`,
    reuseCell(worker.reuse),
  ])));
  options('worker', state.workers.map((worker) => worker.name));
  const groups = Math.max(0, ...state.workers.map((worker) => worker.groups.length));
  options('group', Array.from({length: groups}, (_, group) => String(group)));
  $('#status').textContent = state.workers.length === 0
      ? 'no workers are followed'
      : `${synced} of ${state.workers.length} workers synced`;
}

function stateCell(worker) {
  const cell = element('span', '');
  cell.append(element('span', worker.state, `tag ${worker.state}`));
  if (worker.security === 'insecure') cell.append(element('span', 'insecure', 'tag suspect'));
  return cell;
}

function options(name, values) {
  const select = $(`#filters [name=${name}]`);
  const known = [...select.options].slice(1).map((option) => option.value);
  if (known.join('\n') === values.join('\n')) return;
  const chosen = select.value;
  select.replaceChildren(select.options[0], ...values.map((value) => new Option(value, value)));
  select.value = values.includes(chosen) ? chosen : '';
}

function makeChart(id, stacked) {
  const style = getComputedStyle(document.documentElement);
  const soft = style.getPropertyValue('--soft').trim();
  const line = style.getPropertyValue('--line').trim();
  const axis = {ticks: {color: soft, maxTicksLimit: 5, maxRotation: 0}, grid: {color: line}, stacked};
  return new Chart($(`#${id}`), {
    type: 'line',
    data: {labels: [], datasets: []},
    options: {
      animation: false, responsive: true, maintainAspectRatio: false,
      interaction: {mode: 'index', intersect: false},
      scales: {x: {...axis, stacked: false}, y: {...axis, beginAtZero: true}},
      plugins: {legend: {position: 'bottom', labels: {color: soft, boxWidth: 12, boxHeight: 12}}},
    },
  });
}

// `series`: name -> one value per sample.
function draw(id, labels, series, stacked) {
  const chart = page.charts[id] || (page.charts[id] = makeChart(id, stacked));
  const names = [...series.keys()];
  chart.data.labels = labels;
  chart.data.datasets = names.map((name, i) => ({
    label: name, data: series.get(name), borderColor: COLOURS[i % COLOURS.length],
    backgroundColor: COLOURS[i % COLOURS.length] + (stacked ? '99' : '22'), fill: stacked,
    borderWidth: 1.5, pointRadius: 0, tension: 0.2,
  }));
  chart.update('none');
  const last = names.map((name) => `${name} ${number(Math.round(series.get(name).at(-1) || 0))}`);
  chart.canvas.setAttribute('aria-label',
      `${chart.canvas.closest('figure').querySelector('figcaption').textContent}. Now: ${last.join(', ') || 'nothing'}`);
}

function series(samples, pick) {
  const names = new Set(samples.flatMap((sample) => Object.keys(pick(sample))));
  const sorted = [...names].sort();
  return new Map(sorted.map((name) => [name, samples.map((sample) => pick(sample)[name] || 0)]));
}

function rates(samples, pick) {
  const totals = series(samples, pick);
  for (const [name, values] of totals) {
    totals.set(name, values.slice(1).map((value, i) => {
      const seconds = Math.max(samples[i + 1].time - samples[i].time, 0.1);
      return Math.max(value - values[i], 0) / seconds;
    }));
  }
  return totals;
}

function showHistory() {
  const samples = page.samples;
  if (samples.length < 2) return;
  const labels = samples.map((sample) => new Date(sample.time * 1000).toLocaleTimeString('en-GB'));
  const named = (map) => Object.fromEntries(Object.entries(map).map(([k, v]) => [kindName(k), v]));
  draw('held', labels, series(samples, (sample) => named(sample.held)), true);
  draw('evicted', labels.slice(1), rates(samples, (sample) => named(sample.removed)), false);
  draw('hits', labels.slice(1), rates(samples, (sample) => {
    const hits = {full: sample.full, miss: sample.miss};
    for (const [group, count] of Object.entries(sample.partial_by_group)) {
      hits[group === 'none' ? 'partial' : `partial: group ${group}`] = count;
    }
    return hits;
  }), true);
}

function showDecisions() {
  const items = page.decisions.map((decision) => {
    const chosen = decision.candidates.find((candidate) => candidate.name === decision.worker);
    const button = element('button');
    button.type = 'button';
    button.dataset.number = decision.number;
    button.setAttribute('aria-current', String(decision.number === page.chosen));
    button.append(element('span', `${decision.request_id} → ${decision.worker}`),
                  element('span', chosen.hit, `tag ${chosen.hit}`));
    const item = element('li');
    item.append(button);
    return item;
  });
  const list = $('#decisions');
  const focused = document.activeElement && document.activeElement.dataset.number;
  list.replaceChildren(...items);
  if (focused) list.querySelector(`[data-number="${focused}"]`)?.focus();
}

function explain(decision) {
  const table = element('table');
  const head = element('tr');
  for (const [name, className] of [['Worker'], ['Hit'], ['Reusable', 'n'], ['From CPU', 'n'],
       ['Expected', 'n'], ['Recompute', 'n'], ['Queue', 'n'], ['First token', 'n'], ['Cost', 'n'], ['Limiting group'], ['Exact']]) {
    const th = element('th', name, className);
    th.scope = 'col';
    head.append(th);
  }
  table.append(element('caption', undefined), element('thead'), element('tbody'));
  table.querySelector('caption').className = 'muted';
  table.querySelector('thead').append(head);
  for (const candidate of decision.candidates) {
    const line = row([
      candidate.name, element('span', candidate.hit, `tag ${candidate.hit}`), candidate.reusable_tokens,
      candidate.reusable_with_cpu_tokens - candidate.reusable_tokens, candidate.speculative_tokens,
      candidate.recompute_tokens, candidate.load.active_prefill_tokens, `${Math.round(candidate.predicted_ttft_ms)} ms`,
      `${candidate.cost.toFixed(3)} s`,
      candidate.limiting_group === null ? '–' : `group ${candidate.limiting_group}`,
      candidate.exact ? 'exact' : candidate.reason,
    ]);
    if (candidate.name === decision.worker) line.className = 'chosen';
    table.querySelector('tbody').append(line);
  }
  const scroll = element('div', undefined, 'scroll');
  scroll.tabIndex = 0;
  scroll.setAttribute('role', 'region');
  scroll.setAttribute('aria-label', `Candidates of ${decision.request_id}`);
  scroll.append(table);
  $('#explained').replaceChildren(
      element('h3', `${decision.request_id}: ${number(decision.prompt_tokens)} tokens to ${decision.worker}`),
      element('p', decision.reason), scroll);
}

async function showEvents() {
  const filters = new URLSearchParams({limit: '100'});
  for (const [name, value] of new FormData($('#filters'))) if (value) filters.set(name, value);
  const reply = await ask(`v1/events?${filters}`);
  $('#events tbody').replaceChildren(...reply.events.map((event) => row([
    event.time === null ? '–' : new Date(event.time * 1000).toLocaleTimeString('en-GB'), event.worker, event.type, event.tier,
    [event.group === null ? '–' : String(event.group), 'n'], event.blocks, event.seq,
    [event.first_hash || '', 'hash'],
  ])));
}

async function refresh() {
  const [state, history, decisions] = await Promise.all([
    ask('v1/state'), ask(`v1/history?since=${page.next}`), ask(`v1/decisions?since=${page.nextDecision}`)]);
  if (history.next < page.next) page.samples = [];  // the service was restarted
  page.next = history.next;
  page.samples = page.samples.concat(history.samples).slice(-SAMPLES_MAX);
  if (decisions.next < page.nextDecision) page.decisions = [];
  page.nextDecision = decisions.next;
  const kept = page.decisions.find((decision) => decision.number === page.chosen);
  page.decisions = decisions.decisions.reverse().concat(page.decisions).slice(0, DECISIONS_MAX);
  // Keep the decision that the user is reading.
  if (kept && !page.decisions.includes(kept)) page.decisions.push(kept);
  showFleet(state);
  showHistory();
  if (decisions.decisions.length > 0) showDecisions();
  await showEvents();
  document.body.dataset.refreshed = String(Number(document.body.dataset.refreshed || 0) + 1);
}

// Wait for each reply before the next request, so that a slow service gets fewer requests.
async function loop() {
  if (!page.paused && !document.hidden && $('#login').hidden) {
    try {
      await refresh();
    } catch (error) {
      $('#status').textContent = $('#login').hidden ? `the router does not answer (${error.message})`
                                                    : 'a token with the role observe is needed';
    }
  }
  setTimeout(loop, TICK_MS);
}

$('#pause').addEventListener('click', () => {
  page.paused = !page.paused;
  $('#pause').setAttribute('aria-pressed', String(page.paused));
  if (page.paused) $('#status').textContent = 'paused';
});
$('#login').addEventListener('submit', (event) => {
  event.preventDefault();
  page.token = $('#token').value;
  $('#token').value = '';
  $('#login').hidden = true;
});
$('#filters').addEventListener('submit', (event) => event.preventDefault());
$('#filters').addEventListener('change', () => showEvents().catch(() => {}));
$('#decisions').addEventListener('click', (event) => {
  const button = event.target.closest('button');
  if (!button) return;
  page.chosen = Number(button.dataset.number);
  for (const other of $('#decisions').querySelectorAll('button')) {
    other.setAttribute('aria-current', String(other === button));
  }
  explain(page.decisions.find((decision) => decision.number === page.chosen));
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  for (const chart of Object.values(page.charts)) chart.destroy();
  page.charts = {};
  showHistory();
});
loop();
