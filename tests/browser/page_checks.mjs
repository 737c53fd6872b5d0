// What a person does with the page of `gyre run --page`, in Debian's Chromium, from the start of a job to its end:
//
//   node page_checks.mjs MODULES LINK PICTURES
//
// MODULES: a folder of npm's with playwright-core and axe-core. LINK: what the launcher has printed. The checks run in
// their order, in one browser, on one job of two ranks. A line of JSON each, {"check", "problem"}; tests/e2e/page_test.py
// makes test items of them.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer, get } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { open_browser, run_checks, until } from "./checks.mjs";

const [modules, link, pictures] = process.argv.slice(2);
const require = createRequire(join(modules, "x.js"));

const MARKUP = "<img src=x onerror=document.title=1>";
const { browser, context, page } = await open_browser(modules, { viewport: { width: 1280, height: 1000 } });
const faults = [];
let job_runs = true;
page.on("pageerror", (error) => faults.push(String(error)));
page.on("console", (message) => {
  if (message.type() === "error" && job_runs) faults.push(message.text());
});
let bytes = 0;
page.on("response", async (answer) => {
  if (/\/(page|page\.js|page\.css)$/.test(answer.url())) bytes += (await answer.body()).length;
});

const ranks = page.getByRole("radio");
const lines = page.getByRole("log");
const chart = page.getByRole("region", { name: "train/loss" });

/** The step of the newest line that is shown. */
async function last_step() {
  const text = await lines.locator(".line").last().textContent();
  return Number(/step (\d+)/.exec(text ?? "")?.[1] ?? -1);
}

const checks = {
  async a_link_opens_the_page_once() {
    await page.goto(link);
    await page.waitForURL("http://127.0.0.1:*/*/page");
    await page.getByRole("heading", { level: 1 }).waitFor();
    const cookies = await context.cookies();
    assert.deepEqual(cookies.map(({ httpOnly, sameSite }) => [httpOnly, sameSite]), [[true, "Strict"]]);
    const other = await browser.newContext();
    const second = await other.newPage();
    assert.equal((await second.goto(link)).status(), 403);
    assert.equal((await second.goto(page.url())).status(), 401);
    await other.close();
  },

  async a_server_at_another_port_gets_nothing_that_opens_the_page() {
    // Somebody else's, at which the user looks with the same browser: cookies are sent to all ports of a host.
    const heard = [];
    const other = createServer((request, response) => {
      heard.push(request.headers);
      response.end("<title>other</title>");
    });
    await new Promise((listens) => other.listen(0, "127.0.0.1", listens));
    const tab = await context.newPage();
    const { origin, host } = new URL(page.url());
    const paths = ["/", "/page", "/api/now", "/open/x", `/${"0".repeat(48)}/page`, `/${"0".repeat(48)}/api/now`];
    for (const path of paths) await tab.goto(`http://127.0.0.1:${other.address().port}${path}`);
    await tab.close();
    other.close();
    assert.ok(heard.length >= paths.length);
    const status = (path, cookie) =>
      new Promise((resolve, reject) =>
        get(origin + path, { headers: { host, ...(cookie === undefined ? {} : { cookie }) } }, (answer) => {
          answer.resume();
          resolve(answer.statusCode);
        }).on("error", reject));
    const [ours] = await context.cookies();
    const theirs = [...new Set(heard.map(({ cookie }) => cookie)), `${ours.name}=${ours.value}`];
    for (const cookie of theirs) {
      for (const path of paths) {
        const answer = await status(path, cookie);
        assert.ok([401, 403, 404].includes(answer), `${path} with ${cookie}: ${answer}`);
      }
    }
    // It is the address that they lack; and whoever has that alone, from a history, lacks the cookie.
    const now = new URL("api/now", page.url()).pathname;
    assert.equal(await status(now, `${ours.name}=${ours.value}`), 200);
    assert.equal(await status(now), 401);
  },

  async the_page_is_found_again() {
    const { origin, hash } = new URL(page.url());
    const tab = await context.newPage();
    const is_open = () => tab.locator(".badge.running").waitFor();
    await tab.goto(`${origin}/${hash}`);
    await tab.waitForURL("http://127.0.0.1:*/*/page*");
    await is_open();
    await tab.reload();
    await is_open();
    const address = tab.url();
    await tab.goto("about:blank");
    await tab.goBack();
    await is_open();
    assert.equal(tab.url().split("#")[0], address.split("#")[0]);
    const [text] = await Promise.all([context.waitForEvent("page"), tab.getByRole("link", { name: "all as text" }).click()]);
    await until("the log as text", async () => (await text.locator("body").textContent()).includes("a needle in the log"));
    await text.close();
    await tab.close();
  },

  async ranks_are_seen_as_they_start() {
    await until("two running ranks", async () => (await page.locator(".rank.running").count()) === 2);
    assert.match(await ranks.first().getAttribute("aria-label"), /^rank [01], running, process \d+, step \d+/);
    assert.match(await page.title(), /^running: /);
  },

  async a_log_is_read_live() {
    await until("a step in the log", async () => (await last_step()) >= 0);
    const before = await last_step();
    await until("a later step, in the same page", async () => (await last_step()) > before);
  },

  async a_word_is_found_in_all_of_a_log() {
    const current = page.locator(".line.current:has(mark)");
    const goes_to = async (button, line) => {
      await page.getByRole("button", { name: button }).click();
      await until(`${button} leads to ${line}`, async () => (await current.allTextContents()).join() === line);
      assert.match(page.url(), /rank=0&at=\d+$/);
    };
    await page.getByLabel("Find in the log").fill("needle");
    await goes_to("Previous", "a third needle");
    await goes_to("Previous", "a second needle");
    await goes_to("Previous", "a needle in the log");
    await goes_to("Next", "a second needle");
    await goes_to("Next", "a third needle");
    await page.getByLabel("Find in the log").fill("no such word");
    await page.getByRole("button", { name: "Next" }).click();
    await page.getByText("not found").waitFor();
    await page.getByLabel("Find in the log").fill("a needle");
    await goes_to("Next", "a needle in the log");
    await page.getByText("found from the beginning again").waitFor();
    // As it is shown: without colours, whatever the case, behind a letter that is longer in small letters.
    await page.getByLabel("Find in the log").fill("über der");
    await goes_to("Next", "\u0130\u0130 ÜBER DER Nadel");
    assert.equal(await current.locator("mark").textContent(), "ÜBER DER");
    await page.getByLabel("Find in the log").fill("");
    await page.getByRole("button", { name: "Follow" }).click();
  },

  async of_a_progress_bar_the_last_state_is_shown() {
    await page.getByLabel("Find in the log").fill("1000/1000 batches");
    await page.getByRole("button", { name: "Previous" }).click();
    await page.locator(".line.current mark").waitFor();
    assert.equal(await page.locator(".line.current").textContent(), "1000/1000 batches");
    await page.getByLabel("Find in the log").fill("");
    await page.getByRole("button", { name: "Follow" }).click();
  },

  async many_tabs_are_open_at_once() {
    // Browsers have six connections to a host, and a stream keeps one.
    const tabs = [];
    for (let i = 0; i < 8; i++) tabs.push(await context.newPage());
    for (const tab of tabs) {
      await tab.goto(page.url());
      await tab.locator(".badge.running").waitFor();
      await until("its log", async () => (await tab.locator(".line").count()) > 0);
    }
    const step = async (tab) => Number(/step (\d+)/.exec(await tab.locator(".chosen").textContent())?.[1] ?? -1);
    const before = await step(tabs.at(-1));
    await until("the last of them goes on", async () => (await step(tabs.at(-1))) > before);
    for (const tab of tabs) await tab.close();
  },

  async a_chart_zooms_and_goes_on_growing() {
    await chart.scrollIntoViewIfNeeded();
    await chart.locator("canvas").waitFor();
    const area = await chart.locator(".u-over").boundingBox();
    const all = chart.getByRole("button", { name: "Show all" });
    assert.equal(await all.isDisabled(), true);
    await page.mouse.move(area.x + area.width * 0.2, area.y + 50);
    await page.mouse.down();
    await page.mouse.move(area.x + area.width * 0.4, area.y + 50, { steps: 3 });
    await page.mouse.up();
    assert.equal(await all.isDisabled(), false);
    await all.click();
    assert.equal(await all.isDisabled(), true);
    await chart.getByRole("button", { name: "Zoom in" }).click();
    const ofAll = page.getByRole("button", { name: "Show all" });
    assert.ok((await ofAll.count()) > 1);
    const disabled = async () => (await ofAll.all()).reduce(async (count, one) => (await count) + Number(await one.isDisabled()), 0);
    assert.equal(await disabled(), 0, "all charts are zoomed alike");
    const zoom = new URLSearchParams(new URL(page.url()).hash.slice(1)).get("zoom");
    assert.match(zoom, /^-?[\d.]+~[\d.]+$/);
    const shared = await context.newPage();
    await shared.goto(page.url());
    await until("a link shows the same range", () => shared.getByRole("button", { name: "Show all" }).first().isEnabled());
    await shared.close();
    await page.locator(".u-over").last().dblclick();
    assert.equal(await disabled(), await ofAll.count(), "and back");
    const ends = async () => (await chart.getByRole("img").getAttribute("aria-label")).match(/rank 0: ends at ([\d.e-]+)/)?.[1];
    const before = await ends();
    await until("another last value", async () => (await ends()) !== before);
  },

  async a_logarithmic_axis_is_drawn_of_bytes_too() {
    await page.getByLabel("logarithmic").check();
    const plot = page.getByRole("region", { name: "gyre/memory_bytes" });
    await plot.scrollIntoViewIfNeeded();
    await until("its legend has a value", async () => /MB/.test((await plot.locator(".u-legend").textContent()) ?? ""));
    assert.deepEqual(faults, []);
    await page.getByLabel("logarithmic").uncheck();
  },

  async markup_of_users_stays_text() {
    assert.ok((await page.getByRole("heading", { level: 1 }).textContent()).includes(MARKUP));
    assert.ok((await page.getByRole("heading", { name: MARKUP, level: 2 }).count()) > 0, "a chart's name");
    await until("it is in the log", async () => (await lines.textContent()).includes(MARKUP));
    assert.equal(await page.locator("img").count(), 0);
    assert.match(await page.title(), /^running: /);
  },

  async everything_is_reached_by_keyboard() {
    await page.locator('.rank[tabindex="0"]').focus();
    for (const [key, place] of [["End", -1], ["Home", 0]]) {
      await page.keyboard.press(key);
      await until(`the log of the rank at ${key}`, () =>
        page.evaluate((at) => {
          const rank = [...document.querySelectorAll(".rank")].at(at).dataset.rank;
          return document.querySelector("#log").textContent === `Log of rank ${rank}`;
        }, place));
      assert.match(page.url(), /rank=\d/);
    }
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute("role")), "radio");
  },

  async a_link_to_a_place_shows_that_place() {
    const address = `${page.url().split("#")[0]}#find=loss&smooth=0.50&rank=1&at=3`;
    const other = await context.newPage();
    await other.goto(address);
    await other.getByRole("heading", { name: "Log of rank 1" }).waitFor();
    await other.locator(".line.current").waitFor();
    assert.equal(await other.locator(".chart").count(), 1);
    // Near the end of a log: it stays there as the log grows.
    await page.getByLabel("Find in the log").fill("step");
    await page.getByRole("button", { name: "Previous" }).click();
    await page.locator(".line.current mark").first().waitFor();
    await other.goto("about:blank");
    await other.goto(page.url());
    await other.locator(".line.current").waitFor();
    await other.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
    assert.equal(await other.getByRole("button", { name: "Follow" }).getAttribute("aria-pressed"), "false");
    await other.close();
    await page.locator('.rank[data-rank="1"]').click();
  },

  async a_narrow_screen_has_no_scrolling_aside() {
    await page.setViewportSize({ width: 360, height: 740 });
    await until("it fits", () => page.evaluate(() => document.documentElement.scrollWidth <= 360));
    await page.setViewportSize({ width: 1280, height: 1000 });
  },

  async axe_finds_no_barrier() {
    // The page's policy allows no script but its own; this one comes by way of the debugger.
    await page.evaluate(readFileSync(require.resolve("axe-core/axe.min.js"), "utf8"));
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      const found = await page.evaluate(() => axe.run({ resultTypes: ["violations"] }));
      const bad = found.violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
      assert.deepEqual(bad.map(({ id, nodes }) => [colorScheme, id, nodes.map(({ html }) => html)]), []);
    }
    await page.emulateMedia({ colorScheme: "light" });
  },

  async the_page_is_small_and_has_no_faults() {
    assert.deepEqual(faults, []);
    assert.ok(bytes > 10_000 && bytes < 160_000, `${bytes} bytes`);
    if (pictures) await page.screenshot({ path: join(pictures, "running.png") });
  },

  async the_failures_of_all_ranks_are_reached() {
    // As of a job that goes on without those that it has lost.
    const job = await (await context.request.get(new URL("api/job", page.url()).href)).json();
    const phases = ["lost", "running", "lost"];
    job.ranks = [2, 0, 1].map((rank) => ({ ...job.ranks[0], rank, phase: phases[rank], detail: "was killed by SIGKILL" }));
    const tab = await context.newPage();
    await tab.route("**/api/live", (route) => route.fulfill({ contentType: "text/event-stream", body: `event: job\ndata: ${JSON.stringify(job)}\n\n` }));
    await tab.route("**/api/now", (route) => route.fulfill({ json: { job, metrics: 1, timeline: 0, logs: {}, over: false } }));
    await tab.goto(`${page.url().split("#")[0]}#rank=1`);
    await until("two lost ranks", async () => (await tab.locator(".rank.lost").count()) === 2);
    for (const [next, place] of [[2, 1], [0, 2], [2, 1]]) {
      await tab.getByRole("button", { name: `Next failure: rank ${next} (${place} of 2)` }).click();
      await tab.getByRole("heading", { name: `Log of rank ${next}` }).waitFor();
    }
    await tab.close();
  },

  async a_killed_rank_is_named_first() {
    const label = await page.locator('.rank[data-rank="1"]').getAttribute("aria-label");
    process.kill(Number(/process (\d+)/.exec(label)[1]), "SIGKILL");
    job_runs = false;
    await until("its name at the top", async () =>
      (await page.locator(".verdict").textContent()) === "rank 1 was killed by SIGKILL; it failed first");
    assert.match(await ranks.first().getAttribute("aria-label"), /^rank 1, failed: was killed by SIGKILL/);
  },

  async the_end_is_said_and_stays_readable() {
    await page.getByText("gyre run has ended, with exit code 137. This page stays readable until you close it.", { exact: true }).waitFor();
    assert.match(await page.locator(".report").textContent(), /rank 1 of 2 failed first/);
    assert.equal(await page.locator(".badge").first().textContent(), "failed");
    await page.locator('.rank[data-rank="0"]').click();
    await until("the end of a log that was not open", async () => (await last_step()) > 0);
    await page.getByLabel("Find in the log").fill("step 3 ");
    await page.getByRole("button", { name: "Next", exact: true }).click();
    await page.locator(".line.current mark").waitFor();
    await page.getByLabel("Find in the log").fill("no such word");
    await page.getByRole("button", { name: "Next", exact: true }).click();
    await page.getByText("not found in what was fetched of it").waitFor();
    await page.getByRole("button", { name: /Go to the first failure/ }).click();
    await page.getByRole("heading", { name: "Log of rank 1" }).waitFor();
    await page.locator(".line.current").waitFor();
    assert.ok((await chart.getByRole("img").getAttribute("aria-label")).includes("rank 0: ends at"));
    if (pictures) await page.screenshot({ path: join(pictures, "failed.png") });
  },
};

/** The process of the page, among the launcher's children. */
function page_process() {
  const launcher = process.env.LAUNCHER;
  for (const pid of readFileSync(`/proc/${launcher}/task/${launcher}/children`, "utf8").trim().split(" ")) {
    if (readFileSync(`/proc/${pid}/comm`, "utf8") === "gyre page\n") return Number(pid);
  }
  return assert.fail("the launcher has no page");
}

/** Of another job, whose page is stopped, and then its launcher killed. */
const lost_checks = {
  async a_page_that_is_stopped_says_so_and_goes_on() {
    await page.goto(link);
    const tabs = [page];
    // The others follow without a stream.
    while (tabs.length < 4) tabs.push(await context.newPage());
    for (const tab of tabs) {
      if (tab !== page) await tab.goto(page.url());
      await tab.locator(".badge.running").waitFor();
      await until("a step", async () => /step \d+/.test(await tab.locator(".chosen").textContent()));
    }
    const step = async (tab) => Number(/step (\d+)/.exec(await tab.locator(".chosen").textContent())?.[1] ?? -1);
    process.kill(page_process(), "SIGSTOP");
    try {
      for (const tab of tabs) await tab.getByText("The server of this page does not answer").waitFor();
      assert.equal(await page.locator(".badge").first().textContent(), "running");
    } finally {
      process.kill(page_process(), "SIGCONT");
    }
    for (const tab of tabs) {
      await until("it is connected", async () => (await tab.locator(".connection.live").count()) === 1);
      const before = await step(tab);
      await until("it goes on", async () => (await step(tab)) > before);
      if (tab !== page) await tab.close();
    }
    const before = await last_step();
    assert.equal(await page.getByRole("button", { name: "Follow" }).getAttribute("aria-pressed"), "true");
    await until("its log goes on", async () => (await last_step()) > before);
  },

  async a_lost_connection_is_said() {
    await until("a running rank", async () => (await page.locator(".rank.running").count()) > 0);
    process.kill(Number(process.env.LAUNCHER), "SIGKILL");
    await page.getByText("The connection was lost").waitFor();
    assert.equal(await page.locator(".rank").count(), 2);
    assert.equal(await page.locator(".badge").first().textContent(), "running");
  },
};

await run_checks(process.env.LAUNCHER ? lost_checks : checks, page);
await browser.close();
