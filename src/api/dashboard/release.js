/* Releases a client's locks, after asking for confirmation. */
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

async function release(id) {
  try {
    const answer = await call("DELETE", `/api/v1/clients/${encodeURIComponent(id)}`);
    put("live", `${some(answer.locks_released, "lock")} released`);
    delete $("banner").dataset.order;
  } catch (error) {
    refused("Nothing was released", error);
  }
  hasChanged(id);
  look();
}
