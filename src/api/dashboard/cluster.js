/* The nodes of the cluster, the lease and the last takeover; and the orders to move the service. */
"use strict";

const roleKind = { active: "good", standby: "good", mismatched: "bad", stopping: "warn" };
let cluster = null, drawnNodes = null;

/* It hands the service over, or its lease is over; the reason says which. */
const isStopping = () => cluster?.role === "stopping";

async function give(path, done) {
  try {
    await call("POST", path);
    put("live", done);
    delete $("banner").dataset.order;
  } catch (error) {
    refused("The service stays where it is", error);
  }
  look();
}

function askMove(name) {
  ask({ title: `Move the service to ${name}?`,
    what: `${cluster.node} stops serving, stores everything and hands ${cluster.service} over. ${name} goes on with all locks.`,
    risk: "Clients wait until the other node serves, most often less than a second.",
    yes: "Move", act: () => give(`/api/v1/cluster/move?to=${encodeURIComponent(name)}`, `moving to ${name}`),
    elsewhere: $("clients-filter") });
}

function askTake() {
  ask({ title: `Serve ${cluster.service} on this node?`,
    what: cluster.lease.holder ? `${cluster.lease.holder} hands the service over to ${cluster.node}, or loses it if its lease is over.`
      : `No node serves now. ${cluster.node} takes the service.`,
    risk: "Clients wait until this node serves.",
    yes: "Take", act: () => give("/api/v1/cluster/take", "taking the service"), elsewhere: $("clients-filter") });
}
$("take").addEventListener("click", askTake);

function rowOf(node) {
  const canMove = cluster.role === "active" && node.role === "standby";
  return make("tr", {}, make("td", { class: "id" }, node.name === cluster.node ? `${node.name} (this node)` : node.name),
    make("td", { class: roleKind[node.role] }, node.reason ? `${node.role}: ${node.reason}` : node.role), make("td", {}, node.version), make("td", { class: "n" }, since(node.last_seen)),
    make("td", {}, ...(canMove ? [make("button", { class: "act", "aria-label": `Move the service to ${node.name}`,
      onclick: () => askMove(node.name) }, "Move here…")] : [])));
}

/* Draws the rows only if they changed, so that a button keeps its focus. Ages alone are written into the cells. */
function drawNodes() {
  const text = JSON.stringify([cluster.role, cluster.node, cluster.nodes.map(n => [n.name, n.role, n.reason, n.version])]);
  const body = $("nodes").tBodies[0];
  if (text !== drawnNodes) body.replaceChildren(...cluster.nodes.map(rowOf));
  drawnNodes = text;
  cluster.nodes.forEach((node, i) => { body.rows[i].cells[3].textContent = since(node.last_seen); });
}

function leaseText({ holder, renewed_seconds_ago, seconds }) {
  if (!holder) return `No node has the lease of ${seconds} s.`;
  return `${holder} has the lease of ${seconds} s, renewed ${age(renewed_seconds_ago)} ago.`;
}

function takeoverText(takeover) {
  if (!takeover) return "There was no takeover yet.";
  const from = takeover.from && takeover.from !== takeover.to ? ` from ${takeover.from}` : "";
  const locks = takeover.result === "continued" ? "all locks were held" : "clients had to reclaim their locks";
  return `${takeover.to} took over${from} ${since(takeover.at)} ago, in ${age(takeover.seconds)}: ${takeover.reason}; ${locks}.`;
}

/* @role: of this node; undefined: there is no cluster. */
async function loadCluster(role) {
  if (!role) return;
  cluster = await call("GET", "/api/v1/cluster");
  put("cluster-role", `${cluster.service}: this node, ${cluster.node}, is ${cluster.role}${cluster.reason ? `: ${cluster.reason}` : ""}`,
    roleKind[cluster.role]);
  put("cluster-lease", leaseText(cluster.lease));
  put("cluster-takeover", takeoverText(cluster.last_takeover));
  $("take").hidden = cluster.role !== "standby";
  drawNodes();
  $("cluster").hidden = false;
}
