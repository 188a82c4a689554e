// Answers read aloud, by voices of this browser that the test plays; and a page that finds its server upgraded.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { accessible, ask, closeAll, open, serve, shot } from "./browser.mjs";
import { begin, frame, last, proxy } from "./proxy.mjs";

let server, front, text = "", script = null; // script: [what the page has, what it shall have]
before(async () => {
    server = await serve();
    front = await proxy(server.url, (req, res) => {
        if (script && req.url === "/" && /text\/html/.test(req.headers.accept ?? "")) {
            void fetch(`${server.url}/`, { headers: { Accept: "text/html" } }).then(async (back) => {
                const html = (await back.text()).replaceAll(script[0], script[1]);
                res.writeHead(200, { "content-type": "text/html", "content-security-policy": back.headers.get("content-security-policy"), "cache-control": "no-cache" }).end(html);
            });
            return true;
        }
        if (script && req.url === script[1]) {
            void fetch(server.url + script[0]).then(async (back) => res.writeHead(200, { "content-type": "text/javascript" }).end(await back.text()));
            return true;
        }
        if (req.url !== "/v1/chat/completions") return false;
        req.resume();
        begin(res);
        res.end(frame({ content: text }) + last);
        return true;
    });
});
after(async () => {
    await closeAll();
    await front.stop();
    await server.stop();
});

// The voices; what is spoken is kept in window.said, and each ends when window.next() is called.
function voices(list) {
    window.said = [];
    const queue = [];
    window.next = () => queue.shift()?.onend?.();
    const engine = { getVoices: () => list, addEventListener() {}, cancel: () => (queue.length = 0), speak: (u) => (window.said.push([u.text, u.voice.name]), queue.push(u)) };
    Object.defineProperty(window, "speechSynthesis", { value: engine });
    window.SpeechSynthesisUtterance = class {
        constructor(words) {
            this.text = words;
        }
    };
}
const here = { name: "Anna", lang: "en-GB", voiceURI: "anna", localService: true, default: true };
const there = { name: "Cloud", lang: "en-US", voiceURI: "cloud", localService: false, default: false };
async function withVoices(list) {
    const { page, context, seen } = await open("about:blank");
    await context.addInitScript(voices, list);
    await page.goto(front.url);
    return { page, seen };
}

test("an answer is read sentence by sentence, without code and addresses, and stopped", async () => {
    const { page, seen } = await withVoices([there, here]);
    text = "# Title\n\nFirst **bold** sentence. Second, see [the page](https://example.org/x).\n\n```python\nprint('no')\n```\n\n- an item\n\nThe end.";
    await ask(page, "read");
    await page.getByRole("button", { name: "Read aloud" }).click();
    await page.getByRole("button", { name: "Stop reading" }).waitFor();
    assert.deepEqual(await page.evaluate(() => window.said), ["Title", "First bold sentence.", "Second, see the page.", "an item", "The end."].map((x) => [x, "Anna"]));
    await accessible(page, "reading aloud");
    for (let i = 0; i < 5; i++) await page.evaluate(() => window.next());
    await page.getByRole("button", { name: "Read aloud" }).click();
    await page.getByRole("button", { name: "Stop reading" }).click();
    await page.getByRole("button", { name: "Read aloud" }).waitFor();
    await page.getByText("Everything stays on this server.").waitFor();
    assert.deepEqual(seen.errors, []);
});

test("a voice that is a service elsewhere is used by choice alone, and the page says so", async () => {
    const { page } = await withVoices([there]);
    text = "One sentence.";
    await ask(page, "read");
    assert.equal(await page.getByRole("button", { name: "Read aloud" }).count(), 0);
    await page.getByRole("button", { name: "Settings", exact: true }).click();
    await page.getByRole("combobox", { name: "Voice" }).selectOption("cloud");
    await accessible(page, "voices");
    await shot(page, "settings-voice");
    await page.keyboard.press("Escape");
    await page.locator(".small-print").filter({ hasText: "The voice Cloud is a service of this browser’s maker" }).waitFor();
    await page.getByRole("button", { name: "Read aloud" }).click();
    assert.deepEqual(await page.evaluate(() => window.said), [["One sentence.", "Cloud"]]);
});

test("after an upgrade of the server the page loads itself again, but not while something would be lost", async () => {
    const html = await (await fetch(`${server.url}/`, { headers: { Accept: "text/html" } })).text();
    const own = /<script[^>]* src="(\/studio\/assets\/[^"]+)"/.exec(html)[1];
    const { page } = await open(front.url);
    await page.getByRole("heading", { name: "What shall we work on?" }).waitFor();
    await page.evaluate(() => (window.same = true));
    script = [own, own.replace(/\.js$/, "-2.js")];
    front.down = true;
    await page.getByRole("textbox", { name: "Message", exact: true }).fill("are you there?");
    await page.keyboard.press("Enter");
    await page.locator(".turn .error").filter({ hasText: "does not answer" }).waitFor();
    await page.locator(".composer input[type=file]").setInputFiles({ name: "a.txt", mimeType: "text/plain", buffer: Buffer.from("words") });
    await page.locator(".composer .chip").waitFor();
    front.down = false;
    await page.getByRole("searchbox").fill("any"); // a request finds the server before the page asks whether it is there
    await page.locator(".banner").filter({ hasText: "newer page" }).waitFor();
    await shot(page, "upgraded");
    assert.equal(await page.evaluate(() => window.same), true);
    await page.getByRole("button", { name: "Remove a.txt" }).click();
    await page.locator(`script[src="${script[1]}"]`).waitFor({ state: "attached" });
    await page.getByRole("heading", { name: "What shall we work on?" }).waitFor();
    assert.equal(await page.evaluate(() => window.same), undefined);
    assert.equal(await page.getByText("newer page").count(), 0);
});
