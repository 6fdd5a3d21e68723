/* The server at a glance: serving or in grace, its store, its load. */
"use strict";

const EVERY = 2, POINTS = 300; /* a reading of /metrics every 2 s: a plot shows ten minutes */
let graceEnds = 0, isInGrace = null, term = null;

function showGrace() {
  if (graceEnds) put("state", `grace ${Math.max(0, Math.ceil((graceEnds - performance.now()) / 1000))} s`);
}
setInterval(showGrace, 250);

/* A token that may only look gets no buttons for orders: the server would refuse them. */
function showAccess(access) {
  document.body.classList.toggle("view-only", access === "view");
  $("access").hidden = access !== "view";
}

async function loadStatus() {
  const s = await call("GET", "/api/v1/status");
  put("name", s.name);
  document.title = `${s.name} – Holdfast`;
  showAccess(s.access);
  await loadCluster(s.role);
  isStandby = s.sm_state === null;
  if (isStandby) return showStandby(s);
  setNote("");
  put("about", `version ${s.version} · up ${age(s.uptime_seconds)} · state number ${s.sm_state}`);
  graceEnds = s.grace.active && !isStopping() ? performance.now() + 1000 * s.grace.ends_in_seconds : 0;
  $("state").className = isStopping() ? "bad" : s.grace.active ? "warn" : "good";
  if (isStopping()) put("state", "not serving");
  else if (s.grace.active) showGrace(); else put("state", "serving");
  /* The server counts reservations, too. */
  const n = s.grace.unreclaimed, both = n === 1 ? "lock or reservation" : "locks or reservations";
  const left = `${tables.reservations.items.some(r => r.unreclaimed) ? `${count.format(n)} ${both}` : some(n, "lock")} still to be reclaimed`;
  put("state-why", isStopping() ? cluster.reason ?? "" : s.grace.active ? left : s.grace.reason);
  if (isInGrace !== null && isInGrace !== s.grace.active)
    say(s.grace.active ? `The server was restarted; grace ends in ${age(s.grace.ends_in_seconds)}` : "Grace has ended");
  isInGrace = s.grace.active;
  put("store", s.store.healthy ? "healthy" : "failing", s.store.healthy ? "good" : "bad");
  put("store-what", `${s.store.backend}, ${s.store.lock_durability}`);
  for (const key of ["clients", "locks", "waiters"]) put(`n-${key}`, count.format(s[key]));
  return s;
}

/* The active node has the clients, the locks and the waiters; the reason names it. */
function showStandby(s) {
  put("about", `version ${s.version} · up ${age(s.uptime_seconds)}`);
  graceEnds = 0;
  isInGrace = null;
  put("state", s.role, s.role === "standby" ? "good" : "warn");
  put("state-why", s.grace.reason);
  put("store", "–", "");
  put("store-what", s.store.backend);
  for (const key of ["clients", "locks", "waiters"]) put(`n-${key}`, "–");
  setNote(cluster.lease.holder && cluster.lease.holder !== cluster.node ? `${cluster.lease.holder} has them` : "no node serves");
  return s;
}

/* Load: the difference between two readings of /metrics */

const series = { rate: [], latency: [] };
const texts = { rate: rate => rate.toFixed(rate < 10 ? 1 : 0),
  latency: seconds => seconds < 0.01 ? `${(seconds * 1e6).toFixed(0)} µs` : `${(seconds * 1e3).toFixed(0)} ms` };
let before = null;

/* The text below a plot is its scale: the time that it shows, and its highest point. */
function plot(name) {
  const values = series[name], top = Math.max(...values), step = 400 / (POINTS - 1);
  const points = values.map((v, i) => `${((POINTS - values.length + i) * step).toFixed(1)},${(58 - 54 * v / (top || 1)).toFixed(1)}`);
  $(`${name}-plot`).replaceChildren(svg("svg", { viewBox: "0 0 400 60", "aria-hidden": "true" },
    svg("line", { x1: 0, y1: 59, x2: 400, y2: 59, class: "base" }), svg("polyline", { class: "plot", points: points.join(" ") })));
  put(`${name}-scale`, `${age(EVERY * values.length)}, at most ${texts[name](top)}`);
}

function sumsOf(text) {
  const sums = { at: performance.now(), calls: 0, n: 0, sum: 0 };
  for (const line of text.split("\n")) {
    const value = Number(line.slice(line.lastIndexOf(" ") + 1));
    if (/^(nsm|nlm|nfs|mount)_requests_total\{/.test(line)) sums.calls += value;
    if (line.startsWith("nlm_request_duration_seconds_count")) sums.n += value;
    if (line.startsWith("nlm_request_duration_seconds_sum")) sums.sum += value;
  }
  return sums;
}

async function loadMetrics() {
  const now = sumsOf(await call("GET", "/metrics"));
  if (before && now.calls >= before.calls) { /* less than before: the server was restarted */
    const rate = (now.calls - before.calls) / ((now.at - before.at) / 1000), n = now.n - before.n;
    const latency = n > 0 ? (now.sum - before.sum) / n : 0;
    for (const [name, value] of [["rate", rate], ["latency", latency]])
      series[name] = [...series[name], Math.max(0, value)].slice(-POINTS);
    put("rate", texts.rate(rate));
    put("latency", n > 0 ? texts.latency(latency) : "–");
    plot("rate");
    plot("latency");
  }
  before = now;
}
