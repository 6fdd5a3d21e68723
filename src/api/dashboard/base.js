/* What all other scripts use: nodes, texts, the token, and calls to the server. */
"use strict";

const $ = id => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") node.addEventListener("click", value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

/* Setting a text that has not changed would cost a redraw. */
function put(id, text, kind) {
  const node = $(id);
  if (node.textContent !== text) node.textContent = text;
  if (kind !== undefined && node.className !== kind) node.className = kind;
}

/* Announces important changes to screen readers, in few words. */
let sayLater = 0;
function say(text) {
  clearTimeout(sayLater);
  sayLater = setTimeout(() => put("say", text), 500);
}

/* Texts */

const count = new Intl.NumberFormat("en");
const some = (n, noun) => `${count.format(n)} ${noun}${n === 1 ? "" : "s"}`;

function age(seconds) {
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
function bytes(n) {
  const power = n < 1 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log2(n) / 10));
  return `${power ? (n / 1024 ** power).toFixed(1) : n} ${UNITS[power]}`;
}

const since = text => text ? age(Math.max(0, (Date.now() - Date.parse(text)) / 1000)) : "–";

function range(lock) {
  if (lock.length === 0) return lock.offset === 0 ? "all" : `${lock.offset} to end`;
  return `${lock.offset} + ${lock.length}`;
}

const file = lock => lock.file || `handle ${lock.handle.slice(0, 16)}…`;

/*
 * The owner of a lock is nlm:HOST:NUMBER:HEX, that of a reservation nlm:HOST:HEX. The last part is what the host calls it: most
 * hosts write a text there, such as 1200@build3, which names the process. The column beside it names the host.
 */
function owner(item) {
  const parts = item.owner.split(":"), hex = parts.at(-1), number = parts.length > 3 ? parts.at(-2) : "";
  const text = (hex.match(/../g) ?? []).map(byte => String.fromCharCode(parseInt(byte, 16))).join("");
  if (!/^[!-~]+$/.test(text)) return item.owner;
  return text.startsWith(`${number}@`) || !/^[0-9]+$/.test(number) ? text : `${number}, ${text}`;
}

/* The token comes in the fragment, which a browser never sends. It leaves the address bar at once. */

let token = sessionStorage.getItem("token") || "";

function takeFragment() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return;
  token = given;
  sessionStorage.setItem("token", token);
  history.replaceState(null, "", location.pathname);
}
takeFragment();
addEventListener("hashchange", takeFragment);

/* Calls */

/*
 * JSON.parse() rounds numbers beyond 2^53, and a range may lie there: such numbers become BigInt, which compares with numbers. The
 * pattern does not match inside a string: a quote has a backslash before it there.
 */
function parse(text) {
  const exact = text.replace(/"(offset|length)": ?([0-9]{16,})/g, '"$1":"$2"');
  if (exact === text) return JSON.parse(text);
  return JSON.parse(exact, (key, value) => ((key === "offset" || key === "length") && typeof value === "string" ? BigInt(value) : value));
}

const headers = () => (token ? { Authorization: `Bearer ${token}` } : {});

async function call(method, path) {
  const response = await fetch(path, { method, headers: headers(), cache: "no-store" });
  if (path === "/metrics" && response.ok) return response.text();
  const answer = parse(await response.text());
  if (response.ok) return answer;
  const error = new Error(answer.error.message);
  error.status = response.status;
  throw error;
}

function warn(text, wantsToken) {
  $("banner").hidden = !text;
  put("banner-text", text || "");
  $("token-form").hidden = !wantsToken;
}
