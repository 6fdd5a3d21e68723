/* Releases a client's locks, after asking for confirmation. */
"use strict";

let asked = null, opener = null;

function askRelease(id) {
  const client = clients.get(id);
  if (!client) return;
  asked = id;
  opener = document.activeElement;
  put("ask-what", `${id} will be declared crashed: ${some(client.locks, "lock")} released and `
    + `${some(client.waiters, "waiter")} dropped. The clients that wait for its locks get them.`);
  $("ask").showModal();
}

async function release(id) {
  try {
    const answer = await call("DELETE", `/api/v1/clients/${encodeURIComponent(id)}`);
    put("live", `${some(answer.locks_released, "lock")} released`);
    delete $("banner").dataset.order;
  } catch (error) {
    $("banner").dataset.order = "failed";
    warn(`Nothing was released: ${error.message}`, error.status === 401);
  }
  hasChanged(id);
  look();
}

/* The client's row may be gone; then the filter of the list gets the focus. */
$("ask").addEventListener("close", () => (opener?.isConnected ? opener : $("clients-filter")).focus());
$("ask-no").addEventListener("click", () => $("ask").close());
$("ask-yes").addEventListener("click", () => { $("ask").close(); release(asked); });
