/* The picture of waiters (left) and the clients that block them (right). The table below shows the same as text. */
"use strict";

const EDGES = 40, STEP = 34;

function edgesOf(waiters) {
  const edges = new Map();
  for (const waiter of waiters)
    for (const blocker of waiter.blocked_by_clients) {
      const key = `${waiter.client} → ${blocker}`;
      edges.set(key, { from: waiter.client, to: blocker, n: (edges.get(key)?.n || 0) + 1 });
    }
  return [...edges.values()];
}

/* In pixels of the page, so that the text has the size of other texts on any screen. */
function frameOf() {
  const width = Math.max(280, $("graph").clientWidth), box = Math.min(320, (width - 64) / 2);
  return { width, box, right: width - box - 2, chars: Math.floor((box - 16) / 7) };
}

/* If there is little room, the name of a client says more than its address. */
function shorten(id, chars) {
  const text = id.length > chars ? id.split(":").slice(2).join(":") || id : id;
  return text.length > chars ? `${text.slice(0, chars - 1)}…` : text;
}

function boxOf(frame, x, i, id) {
  return svg("g", {}, svg("rect", { x, y: STEP * i + 4, width: frame.box, height: 26, rx: 6, class: "box" }),
    svg("text", { x: x + 8, y: STEP * i + 21 }, shorten(id, frame.chars)), svg("title", {}, id));
}

function pictureOf(edges, frame) {
  const lefts = [...new Set(edges.map(e => e.from))], rights = [...new Set(edges.map(e => e.to))];
  const height = STEP * Math.max(lefts.length, rights.length) + 8, from = frame.box + 2, to = frame.right, mid = (from + to) / 2;
  const picture = svg("svg", { viewBox: `0 0 ${frame.width} ${height}`, role: "img",
    "aria-label": edges.map(e => `${e.from} waits for ${e.to}`).join("; ") });
  for (const e of edges) {
    const y1 = STEP * lefts.indexOf(e.from) + 17, y2 = STEP * rights.indexOf(e.to) + 17;
    picture.append(svg("path", { class: "edge", d: `M ${from} ${y1} C ${mid} ${y1}, ${mid} ${y2}, ${to - 10} ${y2}` }),
      svg("path", { class: "arrow", d: `M ${to} ${y2} l -10 -5 v 10 z` }));
    if (e.n > 1) picture.append(svg("text", { x: mid - 8, y: (y1 + y2) / 2 - 4 }, `×${e.n}`));
  }
  lefts.forEach((id, i) => picture.append(boxOf(frame, 2, i, id)));
  rights.forEach((id, i) => picture.append(boxOf(frame, frame.right, i, id)));
  return picture;
}

let drawn = null; /* as text, to skip drawing the same picture again */
function drawGraph(waiters) {
  const all = edgesOf(waiters), edges = all.slice(0, EDGES), frame = frameOf();
  const text = JSON.stringify([frame.width, all.length, edges, isStandby]);
  if (text === drawn) return;
  drawn = text;
  const rest = `The picture shows ${EDGES} of ${count.format(all.length)} pairs; the table shows all.`;
  const none = isStandby ? "" : "No client waits for a lock."; /* a standby does not know */
  if (!edges.length) $("graph").replaceChildren(make("p", { class: "soft" }, none));
  else $("graph").replaceChildren(pictureOf(edges, frame), ...(all.length > EDGES ? [make("p", { class: "soft" }, rest)] : []));
}
new ResizeObserver(() => drawGraph(tables.waiters.items)).observe($("graph"));
