// Pictures of the page of a job that runs, and of its end after a rank was killed: tools/page_pictures.py.
//
//   node page_pictures.mjs MODULES LINK FOLDER
import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, link, folder] = process.argv.slice(2);
const { chromium } = createRequire(join(modules, "x.js"))("playwright-core");
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
const page = await browser.newPage({ viewport: { width: 1280, height: 1240 }, timezoneId: "UTC", locale: "en-GB" });
page.setDefaultTimeout(120_000);

const settle = () => page.waitForTimeout(2_500); // Charts are drawn again every two seconds.

await page.goto(link);
await page.locator(".rank.running, .rank.late").nth(3).waitFor();
await page.locator(".line", { hasText: /epoch 8/ }).waitFor();
await settle();
await page.screenshot({ path: join(folder, "page.png") });

// Some seconds in which one rank is slower than the others.
const slow = await page.locator('.rank[data-rank="2"]').getAttribute("aria-label");
const slow_process = Number(/process (\d+)/.exec(slow)[1]);
for (let i = 0; i < 20; i++) {
  process.kill(slow_process, "SIGSTOP");
  await page.waitForTimeout(60);
  process.kill(slow_process, "SIGCONT");
  await page.waitForTimeout(60);
}
await settle();
const timeline = page.getByRole("region", { name: "Timeline" });
const canvas = await timeline.locator("canvas").boundingBox();
await page.mouse.move(canvas.x + canvas.width * 0.88, canvas.y + 5);
await page.mouse.down();
await page.mouse.move(canvas.x + canvas.width * 0.91, canvas.y + 5, { steps: 3 });
await page.mouse.up();
await settle();
await page.mouse.move(0, 0);
await timeline.screenshot({ path: join(folder, "page-timeline.png") });
await timeline.getByRole("button", { name: "Show all" }).click();
await page.evaluate(() => scrollTo(0, 0));

await page.emulateMedia({ colorScheme: "dark" });
await page.setViewportSize({ width: 400, height: 860 });
await settle();
await page.screenshot({ path: join(folder, "page-narrow.png") });

await page.emulateMedia({ colorScheme: "light" });
await page.setViewportSize({ width: 1280, height: 700 });
const label = await page.locator('.rank[data-rank="2"]').getAttribute("aria-label");
process.kill(Number(/process (\d+)/.exec(label)[1]), "SIGKILL");
await page.getByText("gyre run has ended").waitFor();
await settle();
await page.screenshot({ path: join(folder, "page-failed.png") });
await browser.close();
