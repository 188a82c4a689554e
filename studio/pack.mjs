// pack.mjs FROM TO: compresses what Vite built in FROM into TO, one NAME.gz per file.
// pack.mjs --check FROM TO: compares instead, by content: compressors differ between versions of zlib.
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { gunzipSync, gzipSync } from "node:zlib";

const check = process.argv[2] === "--check";
const [from, to] = process.argv.slice(check ? 3 : 2);
const walk = (dir) => readdirSync(dir).sort().flatMap((name) => {
    const path = join(dir, name);
    return statSync(path).isDirectory() ? walk(path) : [path];
});
const built = new Map(walk(from).map((path) => [relative(from, path), readFileSync(path)]));

if (check) {
    const kept = new Map(walk(to).map((path) => [relative(to, path).replace(/\.gz$/, ""), gunzipSync(readFileSync(path))]));
    const wrong = [...new Set([...built.keys(), ...kept.keys()])].filter((name) => !kept.has(name) || !built.has(name) ||
        !kept.get(name).equals(built.get(name)));
    for (const name of wrong) console.error(`${name}: the bundle of the repository is not what its sources give`);
    if (wrong.length) console.error("script/studio rebuilds it");
    process.exit(wrong.length ? 1 : 0);
}
rmSync(to, { recursive: true, force: true });
let sum = 0;
for (const [name, bytes] of built) {
    const packed = gzipSync(bytes, { level: 9 });
    packed[9] = 255; // the operating system's number: unknown
    sum += packed.length;
    mkdirSync(dirname(join(to, name)), { recursive: true });
    writeFileSync(join(to, `${name}.gz`), packed);
}
const html = built.get("index.html").toString();
const first = [...html.matchAll(/(?:src|href)="\/studio\/([^"]+)"/g)].map((m) => m[1]).filter((n) => built.has(n));
const bytes = ["index.html", ...first].reduce((n, name) => n + statSync(join(to, `${name}.gz`)).size, 0);
console.log(`studio: ${built.size} files, ${sum} bytes compressed; first load ${bytes} bytes`);
