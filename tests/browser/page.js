// One page, driven by lines of JSON on stdin: {"do": ..., ...} -> {"ok": ...} or {"error": ...} on stdout.
// LAG=300 in the environment: every request of the page leaves up to 300 ms late, as on a machine that has much to do.
"use strict";
const { chromium } = require("playwright-core");
const readline = require("readline");
const PATIENCE = 60000; // ms for anything that must happen, on any machine

async function main() {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-dev-shm-usage"] });
  const lag = Number(process.env.LAG || 0);
  let page = null, devtools = null;
  const faults = [], requests = [];
  // Not page.waitForFunction(): that needs eval() in the page, which its policy forbids.
  const has = (selector, text) => page.evaluate(([s, t]) =>
    [...document.querySelectorAll(s)].some(n => n.textContent.includes(t)), [selector, text]);
  const until = async (test, what) => {
    for (const end = Date.now() + PATIENCE; !(await test()); await new Promise(done => setTimeout(done, 25)))
      if (Date.now() > end) throw new Error(`does not come: ${what}`);
  };
  const verbs = {
    // body: the page's text, in place of the server's
    async open({ url, width = 1280, height = 900, dark = false, body = null }) {
      // The CA of a test is one that no browser knows.
      const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light", ignoreHTTPSErrors: true });
      page = await context.newPage();
      page.on("console", m => { if (m.type() === "error") faults.push(m.text()); });
      page.on("pageerror", e => faults.push(String(e)));
      page.on("request", r => requests.push(r.url().slice(new URL(url).origin.length)));
      page.on("request", r => { if (!r.url().startsWith(new URL(url).origin) && !r.url().startsWith("data:"))
        faults.push(`foreign request: ${r.url()}`); });
      devtools = await context.newCDPSession(page);
      await devtools.send("Performance.enable", { timeDomain: "threadTicks" });
      if (lag) await page.route("**/*", async route => {
        await new Promise(done => setTimeout(done, lag * Math.random()));
        await route.continue().catch(() => {}); // the page has gone on without it
      });
      if (body) await page.route(at => at.pathname === "/", route => route.fulfill({ body, contentType: "text/html; charset=utf-8" }));
      await page.goto(url, { timeout: PATIENCE });
    },
    // The same page, as it is, in another window or other colours.
    async dress({ width = 1280, height = 900, dark = false }) {
      await page.setViewportSize({ width, height });
      await page.emulateMedia({ colorScheme: dark ? "dark" : "light" });
    },
    async wait({ selector, text }) { await until(() => has(selector, text), `${text} in ${selector}`); },
    async gone({ selector, text }) { await until(async () => !(await has(selector, text)), `no ${text} in ${selector}`); },
    async text({ selector }) { return page.locator(selector).first().innerText(); },
    async click({ selector }) { await page.locator(selector).first().click({ timeout: PATIENCE }); },
    async fill({ selector, text }) { await page.locator(selector).fill(text, { timeout: PATIENCE }); },
    async press({ key }) { await page.keyboard.press(key); },
    async focused() { return page.evaluate(() => document.activeElement.outerHTML.slice(0, 200)); },
    async evaluate({ code }) { return page.evaluate(code); },
    async shot({ path, selector }) {
      if (selector) await page.locator(selector).first().screenshot({ path, timeout: PATIENCE });
      else await page.screenshot({ path, fullPage: true, timeout: PATIENCE });
    },
    // What it cost so far: CPU seconds of its main thread; nodes that are alive, after a collection.
    async cost() {
      await devtools.send("HeapProfiler.collectGarbage");
      const { metrics } = await devtools.send("Performance.getMetrics");
      return Object.fromEntries(metrics.map(m => [m.name, m.value]));
    },
    async tree() { return (await devtools.send("Accessibility.getFullAXTree")).nodes; },
    async requests() { return requests.splice(0); },
    async faults() { return faults.splice(0); },
  };
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    try {
      console.log(JSON.stringify({ ok: (await verbs[order.do](order)) ?? null }));
    } catch (error) {
      console.log(JSON.stringify({ error: String(error) }));
    }
  }
  await browser.close();
}

main();
