// Long conversations and fast answers: no task of the page's main thread takes over 50 ms, and the document stays small.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { closeAll, open, serve, tasksOf } from "./browser.mjs";
import { begin, frame, last, proxy } from "./proxy.mjs";

const N = 10_000;
const TOKENS = 10_000; // of the answer
let server, front;
before(async () => {
    server = await serve();
    front = await proxy(server.url, (req, res) => {
        if (req.url !== "/v1/chat/completions") return false;
        req.resume();
        begin(res);
        let n = 0;
        const started = Date.now();
        const timer = setInterval(() => {
            for (const due = Math.min(TOKENS, Date.now() - started); n < due; n++)
                res.write(frame({ content: n % 40 === 39 ? "word.\n\n" : n % 200 === 50 ? "**bold** `code` " : "word " }));
            if (n === TOKENS) {
                clearInterval(timer);
                res.end(last);
            }
        }, 10);
        return true;
    });
});
after(async () => {
    await closeAll();
    await front.stop();
    await server.stop();
});

// Of processor time. A busy machine slows single tasks: one in a thousand may take three times as long.
const LIMIT_MS = 50;
function report(name, tasks) {
    const top = (key) => tasks.map((t) => t[key]).sort((a, b) => b - a).slice(0, 5).map((n) => n.toFixed(1)).join(" ");
    console.log(`${name}: ${tasks.length} tasks; longest, ms of processor: ${top("cpu")}; of wall time: ${top("wall")}`);
    assert.ok(tasks.length > 20);
    const long = tasks.filter((t) => t.cpu > LIMIT_MS);
    assert.ok(long.length <= Math.ceil(tasks.length / 1000), `${long.length} of ${tasks.length} tasks are long`);
    assert.deepEqual(long.filter((t) => t.cpu > 3 * LIMIT_MS), []);
}

test("10,000 messages scroll", async () => {
    let id;
    for (let k = 0; k < N; k += 1000) {
        const items = Array.from({ length: 1000 }, (_, i) => ({ type: "message", role: (k + i) % 2 ? "assistant" : "user",
            content: [{ type: "input_text", text: `Message **${k + i}**: ${"words of a sentence ".repeat(1 + (i % 7))}\n\n- one\n- two \`code\`` }] }));
        const res = await fetch(`${server.url}/v1/conversations${id ? `/${id}/items` : ""}`, { method: "POST", body: JSON.stringify(id ? { items } : { title: "long", items }) });
        assert.equal(res.status, 200);
        id ??= (await res.json()).id;
    }
    const { page } = await open(`${front.url}/#/c/${id}`);
    await page.getByText("Message 9999").waitFor();
    await page.waitForTimeout(1000);
    await page.evaluate(() => {
        window.most = 0;
        const count = () => {
            window.most = Math.max(window.most, document.querySelectorAll(".turn").length);
            requestAnimationFrame(count);
        };
        count();
    });
    const box = page.locator(".scroller");
    report("scrolling", await tasksOf(page, async () => {
        for (let i = 0; i < 40; i++) {
            await box.evaluate((el, i) => (el.scrollTop -= i % 10 === 9 ? 40_000 : 600), i);
            await page.waitForTimeout(40);
        }
        for (let i = 0; i < 20; i++) {
            await box.evaluate((el, i) => (el.scrollTop = (el.scrollHeight * i) / 20), i);
            await page.waitForTimeout(40);
        }
    }));
    const most = await page.evaluate(() => window.most);
    console.log(`messages in the document: at most ${most}`);
    assert.ok(most > 0 && most <= 200);
    await box.evaluate((el) => (el.scrollTop = 0));
    await page.locator(".turn").first().getByText("Message 0:").waitFor();
});

test("1,000 tokens per second stream", async () => {
    const { page } = await open(front.url);
    await page.getByRole("heading", { name: "What shall we work on?" }).waitFor();
    await page.waitForTimeout(500);
    await page.getByRole("textbox", { name: "Message", exact: true }).fill("write");
    // Sending comes before the stream: its own task is printed and not held to the limit: 50 to 60 ms at a load of 30 to 40.
    const sending = await tasksOf(page, async () => {
        await page.keyboard.press("Enter");
        await page.locator(".turn.assistant .markdown").filter({ hasText: "word" }).waitFor();
    });
    console.log(`sending: longest task ${Math.max(...sending.map((t) => t.cpu)).toFixed(1)} ms of processor`);
    report("streaming", await tasksOf(page, () => page.getByRole("button", { name: "Answer again" }).waitFor()));
    const words = (await page.locator(".turn.assistant .markdown").innerText()).split(/\s+/).length;
    console.log(`${words} words`);
    assert.ok(words > 0.9 * TOKENS);
});
