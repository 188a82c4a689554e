// The page as an application: what Chromium asks of one before it offers to install it, and that it opens while the server
// is away.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { closeAll, open, serve, shot } from "./browser.mjs";
import { proxy } from "./proxy.mjs";

let server, front;
before(async () => {
    server = await serve();
    front = await proxy(server.url);
});
after(async () => {
    await closeAll();
    await front.stop();
    await server.stop();
});

test("Chromium finds nothing that keeps it from being installed", async () => {
    const { page, context } = await open(front.url);
    await page.evaluate(() => navigator.serviceWorker.ready);
    const cdp = await context.newCDPSession(page);
    const { url, errors, data } = await cdp.send("Page.getAppManifest");
    assert.equal(url, `${front.url}/studio/app.webmanifest`);
    assert.deepEqual(errors, []);
    const manifest = JSON.parse(data);
    assert.equal(new URL(manifest.start_url, url).href, `${front.url}/`);
    for (const icon of manifest.icons) {
        const res = await fetch(new URL(icon.src, url));
        assert.equal(res.status, 200, icon.src);
        assert.match(res.headers.get("content-type"), new RegExp(`^${icon.type.replace("+", "\\+")}`));
    }
    const { installabilityErrors } = await cdp.send("Page.getInstallabilityErrors");
    // a context of a test is like a private window, from which nothing can be installed
    assert.deepEqual(installabilityErrors.map((e) => e.errorId).filter((id) => id !== "in-incognito"), []);
});

test("while the server is away, the page opens with its screens, says so, and recovers", async () => {
    const { page } = await open(front.url);
    await page.evaluate(() => navigator.serviceWorker.ready);
    await page.reload(); // through the worker, which keeps what it fetches
    await page.getByRole("heading", { name: "What shall we work on?" }).waitFor();
    await page.waitForFunction(async () => (await caches.match("/")) && (await (await caches.open("studio-1")).keys()).length > 3);
    front.down = true;
    await page.reload();
    await page.getByRole("textbox", { name: "Message", exact: true }).waitFor();
    await page.getByText("The server does not answer. Trying again").first().waitFor();
    await page.waitForFunction(() => [...document.images].length && [...document.images].every((i) => i.complete && i.naturalWidth));
    await shot(page, "offline");
    await page.getByRole("textbox", { name: "Message", exact: true }).fill("kept while offline");
    front.down = false;
    await page.getByText("The server does not answer. Trying again").first().waitFor({ state: "hidden" });
    assert.equal(await page.getByRole("textbox", { name: "Message", exact: true }).inputValue(), "kept while offline");
});
