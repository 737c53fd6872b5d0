// The page of `gyre run -H … --page`, of a job of four ranks on two hosts:
//
//   node hosts_checks.mjs MODULES LINK FIRST SECOND FAIL
//
// FIRST, SECOND: the names of the hosts. FAIL: a file with which rank 3, on the second one, raises an error. Otherwise as
// page_checks.mjs.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { open_browser, run_checks, until } from "./checks.mjs";

const [modules, link, first, second, fail] = process.argv.slice(2);
const require = createRequire(join(modules, "x.js"));
const { browser, page } = await open_browser(modules, { viewport: { width: 1280, height: 1000 } });
const faults = [];
page.on("pageerror", (error) => faults.push(String(error)));

const rank = (number) => page.locator(`.rank[data-rank="${number}"]`);
const label = async (number) => (await rank(number).getAttribute("aria-label")) ?? "";
const lines = page.getByRole("log");
const last_step = async () => Number(/step (\d+)/.exec((await lines.locator(".line").last().textContent()) ?? "")?.[1] ?? -1);

const checks = {
  async the_ranks_of_all_hosts_are_there_with_their_hosts() {
    await page.goto(link);
    await until("four running ranks", async () => (await page.locator(".rank.running").count()) === 4);
    for (const [number, host] of [[0, first], [1, first], [2, second], [3, second]]) {
      await until(`rank ${number}'s numbers`, async () => /, step \d+.*steps\/s.*cores/.test(await label(number)));
      assert.match(await label(number), new RegExp(`^rank ${number}, running, on ${host.replaceAll(".", "\\.")}, step`));
      assert.equal(await rank(number).locator(".host").textContent(), host);
    }
    const events = page.getByRole("region", { name: "Events" });
    await events.getByText(`rank 3 started on ${second}`).waitFor();
  },

  async the_log_of_a_rank_of_another_host_grows() {
    await rank(3).click();
    await until("its steps", async () => (await last_step()) > 0);
    const before = await last_step();
    await until("more of them", async () => (await last_step()) > before);
    await lines.evaluate((element) => element.scrollTo(0, 0));
    await lines.getByText("rank 3 begins: größer, <b>no markup</b>").waitFor();
    await lines.getByText("1000/1000 batches").waitFor(); // Of a progress bar, the last state.
    await lines.getByText("warns on stderr").waitFor();
  },

  async charts_have_the_ranks_of_all_hosts() {
    const chart = page.getByRole("region", { name: "train/loss" });
    await chart.locator("canvas").waitFor();
    assert.match(await chart.getByRole("img").getAttribute("aria-label"), /rank 0.*rank 1.*rank 2.*rank 3/s);
    await page.getByText("The timeline has the ranks whose traces lie on the host of gyre run").waitFor();
    await page.evaluate(readFileSync(require.resolve("axe-core/axe.min.js"), "utf8"));
    const found = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
    assert.deepEqual(found.violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]), []);
  },

  async the_first_failure_is_named_with_its_host_and_its_traceback() {
    writeFileSync(fail, "");
    await until("the verdict", async () =>
      (await page.locator(".verdict").textContent()) === "rank 3 ended with exit code 1; it failed first");
    await page.getByText("gyre run has ended, with exit code 1. This page stays readable until you close it.").waitFor();
    assert.match(await page.locator(".report").textContent(), /rank 3 of 4 failed first.*RuntimeError: the cause/s);
    assert.match(await label(3), new RegExp(`^rank 3, failed: .*, on ${second.replaceAll(".", "\\.")}`));
    for (const number of [0, 1, 2]) assert.match(await label(number), /, stopped/);
    await rank(0).click();
    await page.getByRole("button", { name: "Go to the first failure: rank 3" }).click();
    await until("its traceback", async () => /Traceback/.test((await page.locator(".line.current").textContent()) ?? ""));
    await lines.getByText("RuntimeError: the cause").waitFor(); // The terminal has it once; the log, where it came.
    assert.deepEqual(faults, []);
  },
};

await run_checks(checks, page);
await browser.close();
