/* The server's events, live, and when to load data again. */
"use strict";

const TOLD = { registered: "registered", unregistered: "unregistered", crash: "crashed", cleanup: "cleaned up",
  notify: "SM_NOTIFY", grace_started: "grace has begun", grace_ended: "grace has ended", takeover: "took the service over",
  lost: "events were lost" };
const LINES = 200, FLOOD = 1000;

/* Changed items are loaded soon, everything seldom. Each kind may take a tenth of the time; @most bounds the pause. */

const TENTH = 10, SOON = 200, LATE = 2000, STATUS = 1000, ALL = 5000, SELDOM = 30000;
const due = { changed: 0, all: 0, status: 0, wantsAll: true };
let isBusy = false;

async function timed(act, most, what) {
  const began = performance.now();
  const answer = await act();
  const now = performance.now();
  due[what] = now + Math.min(most, Math.max(SOON, TENTH * (now - began)));
  return answer;
}

async function lookAtAll() {
  due.wantsAll = false;
  await timed(async () => {
    const s = await loadStatus();
    if (isStandby) return showNoLists();
    await loadWaiters();
    await loadLists();
    await loadReservations(s.reservations);
    await loadUsage(s.per_client);
    await loadLimits();
  }, SELDOM, "all");
  due.changed = performance.now() + SOON;
  due.next = performance.now() + Math.max(ALL, 2 * (due.all - performance.now()));
}

async function lookAtChanged() {
  const isAll = await timed(async () => {
    await loadStatus();
    if (isStandby) return false; /* a look at everything clears the lists */
    await loadWaiters();
    return loadChanged();
  }, LATE, "changed");
  due.wantsAll ||= !isAll;
}

/* The lists are unchanged, but the ages in them are not. */
async function lookAtStatus() {
  const s = await loadStatus();
  if (!isStandby && (s.reservations ?? 0) !== nReserved) await loadReservations(s.reservations);
  tables.clients.drawSoon();
  tables.waiters.drawSoon();
}

/* Does the one thing that is due, if any. */
async function look() {
  const now = performance.now();
  if (isBusy || document.hidden) return;
  const act = (due.wantsAll || now > due.next) && now >= due.all ? lookAtAll
    : changed.size && now >= due.changed ? lookAtChanged
    : now >= due.status ? lookAtStatus : null;
  if (!act) return;
  isBusy = true;
  due.status = now + STATUS;
  try {
    await act();
    if (!$("banner").dataset.order) warn("");
  } catch (error) {
    due.wantsAll = true;
    due.all = performance.now() + STATUS;
    warn(error.status === 401 ? "The server needs its token: `holdfast dashboard` prints an address that contains it."
      : `The server does not answer: ${error.message}`, error.status === 401);
  }
  isBusy = false;
}
setInterval(look, 100);
setInterval(() => { if (!document.hidden) loadMetrics().catch(() => {}); }, 1000 * EVERY);
document.addEventListener("visibilitychange", () => { due.wantsAll = true; look(); });
$("token-form").addEventListener("submit", event => {
  event.preventDefault();
  token = $("token").value.trim();
  sessionStorage.setItem("token", token);
  due.wantsAll = true;
  due.all = 0;
  look();
});

/* Events, over fetch(), because EventSource cannot send the token */

/* Of all unlocks, those that an operator ordered are news. */
const isOrder = (kind, data) => kind === "unlock" && data.reason;

/* The server registers a client again when it learns more about it, such as its state number. Only the first time is news. */
const registered = new Set();
function isNews(kind, data) {
  const isKnown = registered.has(data.client);
  if (kind === "registered") registered.add(data.client);
  if (kind === "unregistered") registered.delete(data.client);
  if (kind === "lost") registered.clear();
  return kind === "registered" ? !isKnown : kind in TOLD || isOrder(kind, data);
}

function lineOf(kind, data) {
  const when = data.time ? new Date(data.time * 1000) : new Date();
  const parts = [data.client ?? data.to, TOLD[kind] ?? kind, data.from && `from ${data.from}`, data.result || "", data.reason && `(${data.reason})`,
    data.locks !== undefined ? some(data.locks, "lock") : "", data.lost ? `${data.lost}` : ""].filter(Boolean);
  const isBad = kind === "crash" || kind === "unlock" || kind === "lost" || data.result === "failed";
  return make("li", { class: isBad ? "bad" : null },
    make("time", { datetime: when.toISOString() }, when.toLocaleTimeString()), parts.join(" "));
}

function take(events) {
  const lines = [];
  for (const { kind, text } of events) {
    /* After a flood the lists are loaded whole anyway: parse only the events that the time line shows. */
    if (events.length > FLOOD && !(kind in TOLD)) { due.wantsAll = true; continue; }
    const data = JSON.parse(text);
    if (data.client) hasChanged(data.client);
    if (kind === "lost" || kind === "grace_ended" || kind === "takeover" || changed.size > FLOOD) due.wantsAll = true;
    if (isNews(kind, data)) lines.push([kind, data]);
    if (kind === "crash") say(`${data.client} crashed`);
    if (kind === "takeover") say(`${data.to} took the service over`);
  }
  $("events").prepend(...lines.slice(-LINES).reverse().map(([kind, data]) => lineOf(kind, data)));
  while ($("events").children.length > LINES) $("events").lastChild.remove();
}

function eventOf(part) {
  const fields = Object.fromEntries(part.split("\n").map(line => line.split(/: (.*)/s).slice(0, 2)));
  return { id: Number(fields.id), kind: fields.event, text: fields.data };
}

let last = 0;
async function listen() {
  const s = await loadStatus();
  if (term !== `${s.epoch} ${s.role}`) last = 0; /* a server that begins to serve, or to stand by, counts its events anew */
  term = `${s.epoch} ${s.role}`;
  const response = await fetch(`/api/v1/events?since=${last}`, { headers: headers(), cache: "no-store" });
  if (!response.ok) throw new Error("no events");
  put("live", "live", "good");
  due.wantsAll = true;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    const events = parts.map(eventOf).filter(event => event.kind);
    if (!events.length) continue;
    last = (events.findLast(event => event.id)?.id ?? last - 1) + 1;
    take(events);
    look();
  }
}

(async () => {
  for (;;) {
    try { await listen(); } catch { /* retried below */ }
    put("live", "not connected, retrying", "bad");
    await new Promise(done => setTimeout(done, 2000));
  }
})();
