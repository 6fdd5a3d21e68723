/* Releases a client's locks, or one of them, after asking for confirmation. */
"use strict";

/* The client's row may be gone when the dialog closes; then the filter of the list gets the focus. */
function askRelease(id) {
  const client = clients.get(id);
  if (!client) return;
  ask({ title: "Release this client's locks?",
    what: `${id} will be declared crashed: ${some(client.locks, "lock")} released and `
      + `${some(client.waiters, "waiter")} dropped. The clients that wait for its locks get them.`,
    risk: "A client that is still alive does not learn of it, and may write to files that other clients lock then.",
    yes: "Release", act: () => release(id), elsewhere: $("clients-filter") });
}

/* One lock, or all that its client has in the file. */
function askRevoke(lock) {
  const all = (locks.get(lock.client) ?? []).filter(l => l.handle === lock.handle);
  ask({ title: "Release this lock?",
    what: `The ${lock.mode} lock of ${lock.client} on ${file(lock)}, bytes ${range(lock)}, will be released. The clients that wait for it get it.`,
    risk: "The client does not learn of it. A program that is still alive goes on writing in the belief that it holds the lock, "
      + "while another program does.",
    yes: "Release", act: () => revoke(lock, true), elsewhere: $("locks-filter"),
    ...(all.length > 1 ? { more: `Release all ${count.format(all.length)} in this file`, actMore: () => revoke(lock, false) } : {}) });
}

function revoke(lock, isOne) {
  const query = { client: lock.client, handle: lock.handle,
    ...(isOne ? { offset: lock.offset, length: lock.length, owner: lock.owner } : {}) };
  const text = Object.entries(query).map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&");
  return releaseBy(`/api/v1/locks?${text}`, lock.client);
}

const release = id => releaseBy(`/api/v1/clients/${encodeURIComponent(id)}`, id);

/* @id: the client that the order is about */
async function releaseBy(path, id) {
  try {
    const answer = await call("DELETE", path);
    put("live", `${some(answer.locks_released, "lock")} released`);
    delete $("banner").dataset.order;
  } catch (error) {
    refused("Nothing was released", error);
  }
  hasChanged(id);
  look();
}
