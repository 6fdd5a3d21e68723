/* Releasing a client's locks, after saying what that does. */
"use strict";

let asked = null, opener = null;

function askRelease(id) {
  const client = clients.get(id);
  if (!client) return;
  asked = id;
  opener = document.activeElement;
  put("ask-what", `${id} will be declared crashed: ${some(client.locks, "lock")} released and `
    + `${some(client.waiters, "waiter")} dropped. Those who wait for its locks get them.`);
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

/* Its row may have gone in the meantime; then the list's own filter is the nearest place. */
$("ask").addEventListener("close", () => (opener?.isConnected ? opener : $("clients-filter")).focus());
$("ask-no").addEventListener("click", () => $("ask").close());
$("ask-yes").addEventListener("click", () => { $("ask").close(); release(asked); });
