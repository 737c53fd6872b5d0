// What the scripts of checks in a browser have in common.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";

const LIMIT_MS = 20_000;

/** Debian's Chromium, with a page. `modules`: a folder of npm's with playwright-core. */
export async function open_browser(modules, context_options) {
  const { chromium } = createRequire(join(modules, "x.js"))("playwright-core");
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
  const context = await browser.newContext(context_options);
  context.setDefaultTimeout(LIMIT_MS);
  return { browser, context, page: await context.newPage() };
}

export async function until(what, holds) {
  for (const end = Date.now() + LIMIT_MS; Date.now() < end; ) {
    if (await holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  assert.fail(`not within ${LIMIT_MS / 1000} s: ${what}`);
}

/** In their order, up to the first that fails. A line of JSON for each, {"check", "problem"}. */
export async function run_checks(checks, page) {
  for (const [check, act] of Object.entries(checks)) {
    let problem = null;
    try {
      await act();
    } catch (error) {
      const seen = await page.locator("body").innerText().catch(() => "");
      problem = `${error.stack ?? error}\nThe page: ${seen.slice(0, 1500)}`;
    }
    console.log(JSON.stringify({ check, problem }));
    if (problem !== null) break;
  }
}
