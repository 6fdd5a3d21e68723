/*
 * Clients, locks, waiters, reservations and use by client and export, as the server has them, without loading everything
 * all the time.
 *
 * An event names a client; the page loads that client again, with its locks. It loads everything if too many clients
 * changed or events were lost, and from time to time. Each kind of load may take at most a tenth of the time, so the
 * page loads less often when there is more to load.
 */
"use strict";

const PAGES = 20, AT_ONCE = 32;
const statusKind = { active: "good", notified: "good", unreachable: "warn", crashed: "bad" };

const DAY = 86400, TIGHT = 0.8;
const SEEN = Symbol("seen"); /* a symbol: the filter does not search it */
const silence = client => (performance.now() - client[SEEN]) / 1000; /* as the server's clock measured it, and since then */
const words = name => name.replace("_", " and "); /* read_write */

const tables = {
  clients: new Table("clients", { noun: "client", sort: "locks", down: true, keyOf: c => c.id, columns: [
    { key: "id", title: "Client", kind: "id" },
    { key: null, title: "Action", act: c => make("button", { class: "act", "aria-label": `Release the locks of ${c.id}`,
      onclick: () => askRelease(c.id) }, "Release…") },
    { key: "status", title: "Status", mark: c => statusKind[c.status] },
    { key: "locks", title: "Locks", kind: "n" }, { key: "waiters", title: "Waiters", kind: "n" },
    { key: "sm_state", title: "State number", kind: "n" },
    { key: "transport", title: "Transport", text: c => (c.identity ? `${c.transport}: ${c.identity}` : c.transport ?? "–") },
    { key: "tls_connection", title: "TLS now", text: c => (c.authenticated_as ? `${c.tls_connection}: ${c.authenticated_as}` : c.tls_connection ?? "–") },
    { key: "refused_calls", title: "Refused calls", kind: "n", mark: c => (c.refused_calls ? "warn" : "") },
    { key: "registered_at", title: "Age", kind: "n", text: c => since(c.registered_at) },
    { key: "silent_seconds", title: "Silent for", kind: "n", text: c => age(silence(c)),
      mark: c => (c.locks && silence(c) > DAY ? "warn" : "") }] }),
  locks: new Table("locks", { noun: "lock", sort: "client", down: false,
    keyOf: l => `${l.client} ${l.owner} ${l.handle} ${l.offset} ${l.length} ${l.mode}`, columns: [
      { key: "share", title: "Export" }, { key: "file", title: "File", kind: "id", text: file },
      { key: null, title: "Action", act: l => make("button", { class: "act", "aria-label": `Release the lock of ${l.client} on ${file(l)}, ${range(l)}`,
        onclick: () => askRevoke(l) }, "Release…") },
      { key: "offset", title: "Range", text: range }, { key: "mode", title: "Mode" },
      { key: "state", title: "State", mark: l => (l.state === "held" ? "" : "warn") },
      { key: "client", title: "Client", kind: "id" }, { key: "owner", title: "Owner", kind: "id", text: owner }] }),
  waiters: new Table("waiters", { noun: "waiter", sort: "waiting_seconds", down: true,
    keyOf: w => `${w.owner} ${w.handle} ${w.offset} ${w.length}`, columns: [
      { key: "waiting_seconds", title: "Waiting", kind: "n", text: w => age((performance.now() - w.began) / 1000) },
      { key: "file", title: "File", kind: "id", text: file }, { key: "offset", title: "Range", text: range },
      { key: "mode", title: "Mode" }, { key: "client", title: "Client", kind: "id" },
      { key: "blocked_by_clients", title: "Blocked by", kind: "id",
        text: w => [...new Set(w.blocked_by_clients)].join(", ") || "another waiter" }] }),
  reservations: new Table("reservations", { noun: "reservation", sort: "client", down: false,
    keyOf: r => `${r.owner} ${r.client} ${r.handle} ${r.mode} ${r.access}`, columns: [
      { key: "share", title: "Export" }, { key: "file", title: "File", kind: "id", text: file },
      { key: "access", title: "Access", text: r => words(r.access) }, { key: "mode", title: "Denies", text: r => words(r.mode.slice(5)) },
      { key: "count", title: "Count", kind: "n" },
      { key: "unreclaimed", title: "Unreclaimed", kind: "n", mark: r => (r.unreclaimed ? "warn" : "") },
      { key: "client", title: "Client", kind: "id" }, { key: "owner", title: "Owner", kind: "id", text: owner }] }),
  usage: new Table("usage", { noun: "pair", sort: "rate", down: true, keyOf: u => `${u.address} ${u.share}`, columns: [
    { key: "address", title: "Client", kind: "id" }, { key: "share", title: "Export" },
    { key: "rate", title: "Calls per second", kind: "n", text: u => u.rate.toFixed(u.rate < 10 ? 1 : 0) },
    { key: "calls", title: "Calls", kind: "n", text: u => count.format(u.calls) },
    { key: "bytes_read", title: "Read", kind: "n", text: u => bytes(u.bytes_read) },
    { key: "bytes_written", title: "Written", kind: "n", text: u => bytes(u.bytes_written) },
    { key: "locks", title: "Lock calls", kind: "n", text: u => count.format(u.locks) },
    { key: "errors", title: "Errors", kind: "n", text: u => count.format(u.errors) },
    { key: "last_used", title: "Last use", kind: "n", text: u => (u.last_used ? `${since(u.last_used)} ago` : "–") }] }),
  limits: new Table("limits", { noun: "limit", sort: "share", down: true, keyOf: l => l.name, columns: [
    { key: "what", title: "Limit", kind: "id" },
    { key: "share", title: "Use", kind: "n", text: l => `${Math.round(100 * l.share)} %`,
      mark: l => (l.is_cache ? "" : l.share >= 1 ? "bad" : l.share >= TIGHT ? "warn" : "") },
    { key: "used", title: "Used", kind: "n", text: l => l.used.toLocaleString("en") },
    { key: "max", title: "At most", kind: "n", text: l => l.max.toLocaleString("en") },
    { key: "refused", title: "Refused", kind: "n", mark: l => (l.refused && !l.is_cache ? "warn" : "") },
    { key: "by", title: "Most by", kind: "id", text: l => l.by ?? "" }] }),
};

const clients = new Map(); /* by id */
const locks = new Map(); /* by client: its locks */
const changed = new Set(); /* ids that events named, the latest last */

function hasChanged(id) {
  changed.delete(id);
  changed.add(id);
}
let isCut = { clients: false, locks: false };
let isStandby = false; /* of a cluster: the active node has the lists */

/* @note: where the lists are; empty: here */
function setNote(note) {
  for (const table of Object.values(tables)) table.note = note;
}

function showNoLists() {
  changed.clear();
  clients.clear();
  locks.clear();
  isCut = { clients: false, locks: false };
  showLists();
  tables.waiters.set([]);
  drawGraph([]);
  showReservations([]);
  showUsage([]);
  tables.limits.set([]);
}

function showLists() {
  tables.clients.set([...clients.values()], isCut.clients);
  tables.locks.set([...locks.values()].flat(), isCut.locks);
}

/* @last of the answer: the last page, which may have more than a list */
async function loadAll(name, query = "") {
  const items = [];
  let cursor = null, page = 0, last = null;
  do {
    last = await call("GET", `/api/v1/${name}?limit=1000${query}${cursor ? `&cursor=${cursor}` : ""}`);
    items.push(...last[name]);
    cursor = last.next;
  } while (cursor && ++page < PAGES);
  return { items, isCut: Boolean(cursor), last };
}

async function loadWaiters() {
  const { items, isCut } = await loadAll("waiters");
  for (const waiter of items) waiter.began = performance.now() - 1000 * waiter.waiting_seconds;
  tables.waiters.set(items, isCut);
  drawGraph(items);
}

let nReserved = 0; /* as the status said when they were loaded */

function showReservations(items, isCut) {
  tables.reservations.set(items, isCut);
  $("reserved").hidden = !items.length;
}

/* No event tells of a reservation, so their number in the status tells when to load them again. */
async function loadReservations(n = 0) {
  const { items, isCut } = await loadAll("reservations");
  nReserved = n;
  showReservations(items, isCut);
}

/* Those of which anything is used, or that have refused anything. */
async function loadLimits() {
  const { limits } = await call("GET", "/api/v1/limits");
  for (const limit of limits) limit.share = limit.used / limit.max;
  tables.limits.set(limits.filter(l => l.used || l.refused));
}

/* Calls by client and export. What was counted before gives the rate; a pair that has less than before began anew. */

let counted = { at: 0, calls: new Map() };

function showUsage(items, isCut) {
  tables.usage.set(items, isCut);
  $("used").hidden = !items.length;
}

async function loadUsage(isOn) {
  if (!isOn) {
    counted = { at: 0, calls: new Map() };
    return showUsage([]);
  }
  const { items, isCut, last } = await loadAll("usage", "&sort=address");
  const before = counted, now = performance.now(), calls = new Map();
  items.push({ ...last.other, address: "other", share: "" });
  for (const item of items) {
    const key = tables.usage.keyOf(item), old = before.calls.get(key) ?? 0;
    item.rate = before.at ? (item.calls < old ? item.calls : item.calls - old) / ((now - before.at) / 1000) : 0;
    calls.set(key, item.calls);
  }
  counted = { at: now, calls };
  showUsage(items, isCut);
}

function takeClient(client) {
  client[SEEN] = performance.now() - 1000 * client.silent_seconds;
  clients.set(client.id, client);
}

async function loadLists() {
  changed.clear(); /* changes from now on are loaded again */
  const found = { clients: await loadAll("clients"), locks: await loadAll("locks") };
  clients.clear();
  locks.clear();
  for (const client of found.clients.items) takeClient(client);
  for (const lock of found.locks.items)
    if (locks.has(lock.client)) locks.get(lock.client).push(lock);
    else locks.set(lock.client, [lock]);
  isCut = { clients: found.clients.isCut, locks: found.locks.isCut };
  showLists();
}

async function loadClient(id) {
  try {
    const answer = await call("GET", `/api/v1/clients/${encodeURIComponent(id)}`);
    takeClient({ ...answer, locks: answer.lock_count });
    if (!answer.has_more_locks) locks.set(id, answer.locks);
    else return false;
  } catch (error) {
    if (error.status !== 404) throw error;
    clients.delete(id);
    locks.delete(id);
  }
  return true;
}

/*
 * Loads a few of the changed clients: those on the page first, then the latest; the others wait until everything is
 * loaded. True: all of them are up to date.
 */
async function loadChanged() {
  const seen = [...tables.clients.shown().map(c => c.id), ...tables.locks.shown().map(l => l.client)];
  const order = [...new Set([...seen.filter(id => changed.has(id)), ...[...changed].reverse()])].slice(0, AT_ONCE);
  for (const id of order) changed.delete(id);
  const answers = await Promise.all(order.map(loadClient)); /* in parallel: each may take long over a slow network */
  if (order.length) showLists();
  return answers.every(Boolean) && changed.size === 0;
}
