/* The dialog before every order: it says what will happen and what is at risk, and asks for confirmation. */
"use strict";

let order = null, wider = null, opener = null, instead = null;

/*
 * @yes: the word on the button that gives the order; @act gives it; @elsewhere gets the focus if the opener is gone.
 * @more, @actMore: the same for a second button with a wider order, if there is one.
 */
function ask({ title, what, risk, yes, act, elsewhere, more = "", actMore = null }) {
  order = act;
  wider = actMore;
  opener = document.activeElement;
  instead = elsewhere;
  put("ask-title", title);
  put("ask-what", what);
  put("ask-risk", risk);
  put("ask-yes", yes);
  put("ask-more", more);
  $("ask-more").hidden = !actMore;
  $("ask").showModal();
}

/* An order that was refused stays on the page until the next one. */
function refused(text, error) {
  $("banner").dataset.order = "failed";
  warn(`${text}: ${error.message}`, error.status === 401);
}

$("ask").addEventListener("close", () => (opener?.isConnected && !opener.hidden ? opener : instead).focus());
$("ask-no").addEventListener("click", () => $("ask").close());
$("ask-yes").addEventListener("click", () => { $("ask").close(); order(); });
$("ask-more").addEventListener("click", () => { $("ask").close(); wider(); });
