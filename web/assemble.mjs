// Makes built/report.html, the page as the program carries it: script and style inside, each allowed by its hash alone,
// and a mark where the program puts the data. The digest of the sources tells a test whether the page is theirs.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";

const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

const sources = createHash("sha256");
const inputs = readdirSync("src").map((name) => `src/${name}`);
for (const name of [...inputs, "assemble.mjs", "package-lock.json", "tsconfig.json", "vite.config.ts"].sort()) {
  sources.update(`${name}\n`).update(readFileSync(name));
}
const script = readFileSync("out/page.js", "utf8").trim();
const style = readFileSync("out/page.css", "utf8").trim();
if (/<\/(script|style)/i.test(script + style)) throw new Error("the script would end early in a page");
const licences = ["preact", "uplot"].map((name) => `${name}:\n${readFileSync(`node_modules/${name}/LICENSE`, "utf8").trim()}`);
if (licences.join().includes("--")) throw new Error("a licence would end its comment");
const policy = `default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; base-uri 'none'; form-action 'none'`;
const page = `<!doctype html>
<!-- Built from web/ (sources ${sources.digest("hex")}); see CONTRIBUTING.md. It contains

${licences.join("\n\n")}
-->
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<title>Gyre report</title>
<style>${style}</style>
</head>
<body>
<div id="page"></div>
<noscript>This report draws its charts with JavaScript.</noscript>
<script type="application/json" id="data">@DATA@</script>
<script>${script}</script>
</body>
</html>
`;
mkdirSync("built", { recursive: true });
writeFileSync("built/report.html", page);
console.log(`built/report.html: ${Math.round(page.length / 1024)} KB`);
