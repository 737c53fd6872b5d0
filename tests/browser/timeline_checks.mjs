// The timeline on the page of `gyre run --page --timeline`, and then in the page of its --report:
//
//   node timeline_checks.mjs MODULES LINK STOP REPORT
//
// STOP: a file that ends the training. REPORT: what the launcher writes then. Otherwise as page_checks.mjs.
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { open_browser, run_checks, until } from "./checks.mjs";

const [modules, link, stop, report] = process.argv.slice(2);
const require = createRequire(join(modules, "x.js"));
const { browser, page } = await open_browser(modules, { viewport: { width: 1280, height: 1000 } });
const faults = [];
page.on("pageerror", (error) => faults.push(String(error)));
const timeline = page.getByRole("region", { name: "Timeline" });
const words = async () => (await timeline.getByRole("img").getAttribute("aria-label")) ?? "";
const all = timeline.getByRole("button", { name: "Show all" });

/** Something other than the background is drawn in each of the lanes of two ranks. */
const lanes = () => timeline.locator("canvas").evaluate((canvas) => {
  const scale = devicePixelRatio;
  const pixels = canvas.getContext("2d");
  const drawn = (top) => pixels.getImageData(0, Math.round(top * scale), canvas.width, Math.round(12 * scale)).data.some((value) => value > 0);
  return [2, 17, 36, 51].map(drawn);
});

const checks = {
  async the_timeline_of_all_ranks_grows() {
    await page.goto(link);
    await timeline.waitFor();
    await until("what both ranks do", async () => /rank 0 computes .*waits for ranks.*; rank 1 computes /.test(await words()));
    await until("both lanes of both ranks", async () => (await lanes()).every(Boolean));
    const before = await words();
    await until("more of it", async () => (await words()) !== before);
  },

  async it_zooms_by_mouse_and_by_keyboard() {
    const length = async () => /ranks, ([^.]+(\.\d+)?) (s|ms|µs)\./.exec(await words())[0];
    assert.equal(await all.isDisabled(), true);
    const area = await timeline.locator("canvas").boundingBox();
    await page.mouse.move(area.x + area.width * 0.7, area.y + 10);
    await page.mouse.down();
    await page.mouse.move(area.x + area.width * 0.9, area.y + 10, { steps: 3 });
    await page.mouse.up();
    assert.equal(await all.isDisabled(), false);
    const seen = await length();
    await timeline.locator(".rows").focus();
    await page.keyboard.press("+");
    await until("less of it", async () => (await length()) !== seen);
    await page.keyboard.press("0");
    assert.equal(await all.isDisabled(), true);
    await timeline.locator("canvas").hover({ position: { x: area.width / 2, y: 10 } });
    await until("what the pointer is at", async () => /rank 0 at /.test(await timeline.locator(".pointed").textContent()));
  },

  async its_axis_has_round_times() {
    const seen = await timeline.locator(".tick").evaluateAll((ticks) => ticks.map((tick) => [tick.textContent, tick.getBoundingClientRect().left]));
    assert.ok(seen.length >= 3 && seen.length <= 14, JSON.stringify(seen));
    const times = seen.map(([label]) => Number(/^([\d.]+) (s|ms|µs)$/.exec(label)[1]));
    const step = times[1] - times[0];
    const leading = Number(step.toExponential(6).split("e")[0]);
    assert.ok([1, 2, 5].some((factor) => Math.abs(leading - factor) < 1e-6), `${step} is 1, 2, or 5 times a power of ten`);
    assert.equal(times[0], 0);
    assert.ok(Math.abs(seen[0][1] - (await timeline.locator("canvas").boundingBox()).x) < 1.5, "the first stands where the rows begin");
    const pixels = (seen[1][1] - seen[0][1]) / step;
    for (const [i, time] of times.entries()) {
      assert.ok(Math.abs(time / step - Math.round(time / step)) < 1e-6, `${time} is a multiple of ${step}`);
      assert.ok(Math.abs(seen[i][1] - seen[0][1] - (time - times[0]) * pixels) < 1.5, "each stands where its time is");
    }
    if (process.env.PICTURES) await timeline.screenshot({ path: join(process.env.PICTURES, "timeline.png") });
  },

  async its_shares_are_a_table_and_axe_finds_no_barrier() {
    await timeline.getByText("As a table").click();
    await until("a row of each rank", async () => (await timeline.getByRole("row").count()) === 3);
    await page.evaluate(readFileSync(require.resolve("axe-core/axe.min.js"), "utf8"));
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      const found = await page.evaluate(() => axe.run(document.querySelector(".timeline"), { resultTypes: ["violations"] }));
      assert.deepEqual(found.violations.map(({ id, nodes }) => [colorScheme, id, nodes.map(({ html }) => html)]), []);
    }
  },

  async it_stays_when_the_run_has_ended() {
    writeFileSync(stop, "");
    await page.getByText("gyre run has ended well, with exit code 0. This page stays readable until you close it.").waitFor();
    await timeline.getByRole("button", { name: "Zoom in" }).click();
    await until("both lanes of both ranks", async () => (await lanes()).every(Boolean));
    assert.deepEqual(faults, []);
  },

  async the_report_has_it_too() {
    await until("the report", () => existsSync(report) && readFileSync(report, "utf8").endsWith("</html>\n"));
    await page.goto(`file://${report}`);
    await timeline.waitFor();
    assert.match(await words(), /rank 0 computes .*; rank 1 computes /);
    assert.deepEqual(faults, []);
  },
};

await run_checks(checks, page);
await browser.close();
