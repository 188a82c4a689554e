// Speech through the server: a recording becomes text, an answer is read by the server's voice, and who speaks interrupts it.
// The microphone is Chromium's: it beeps once a second.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { accessible, closeAll, open, serve, shot } from "./browser.mjs";
import { begin, frame, last, proxy } from "./proxy.mjs";

// Silence of 0.2 s, as a WAV file of 8,000 samples per second.
const wav = Buffer.alloc(44 + 3200);
wav.write("RIFF", 0), wav.writeUInt32LE(36 + 3200, 4), wav.write("WAVEfmt ", 8), wav.writeUInt32LE(16, 16), wav.writeUInt16LE(1, 20), wav.writeUInt16LE(1, 22);
wav.writeUInt32LE(8000, 24), wav.writeUInt32LE(16000, 28), wav.writeUInt16LE(2, 32), wav.writeUInt16LE(16, 34), wav.write("data", 36), wav.writeUInt32LE(3200, 40);
let audio, server, front, spoken = [], recordings = [], words = "what did I say", status = 200, text = "", asked = [];
before(async () => {
    audio = createServer((req, res) => {
        const parts = [];
        req.on("data", (d) => parts.push(d));
        req.on("end", () => {
            const body = Buffer.concat(parts);
            if (req.url === "/v1/audio/speech") spoken.push(JSON.parse(body).input);
            else recordings.push(body.length);
            if (status !== 200) return res.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify({ error: { message: "the audio server is out of order" } }));
            if (req.url === "/v1/audio/speech") return res.writeHead(200, { "Content-Type": "audio/wav" }).end(wav);
            res.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify({ text: ` ${words} ` }));
        });
    });
    await new Promise((done) => audio.listen(0, "127.0.0.1", done));
    const url = `http://127.0.0.1:${audio.address().port}`;
    server = await serve("--stt-url", url, "--tts-url", url);
    front = await proxy(server.url, (req, res) => {
        if (req.url !== "/v1/chat/completions") return false;
        const parts = [];
        req.on("data", (d) => parts.push(d));
        req.on("end", () => {
            asked.push(JSON.parse(Buffer.concat(parts)).messages.at(-1).content);
            begin(res);
            res.end(frame({ content: text }) + last);
        });
        return true;
    });
});
after(async () => {
    await closeAll();
    audio.close();
    audio.closeAllConnections();
    await front.stop();
    await server.stop();
});
const until = async (ready, what) => {
    for (let i = 0; !ready(); i++) {
        assert.ok(i < 1200, what);
        await new Promise((done) => setTimeout(done, 100));
    }
};
const message = (page) => page.getByRole("textbox", { name: "Message", exact: true });

test("speech becomes the message, which is not sent by itself", async () => {
    const { page, seen } = await open(front.url);
    await page.getByText(`Speech goes through this server to 127.0.0.1:${audio.address().port}.`).waitFor();
    await page.getByRole("button", { name: "Speak", exact: true }).click();
    await page.getByRole("button", { name: "Stop recording" }).waitFor();
    await accessible(page, "recording");
    await shot(page, "recording");
    await page.getByRole("button", { name: "Stop recording" }).click();
    await page.waitForFunction(() => document.querySelector("#composer").value === "what did I say");
    assert.ok(recordings[0] > 200);
    assert.deepEqual(asked, []);
    assert.deepEqual(seen.errors, []);
    assert.ok(seen.requests.every((x) => x.startsWith(front.url) || x.startsWith("blob:") || x.startsWith("data:")));
});

test("the server's voice reads an answer sentence by sentence, and stops", async () => {
    spoken = [];
    text = "First sentence. Second one.\n\n```js\nno code\n```\n\nThe end.";
    const { page } = await open(front.url);
    await message(page).fill("read");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Read aloud" }).click();
    await page.getByRole("button", { name: "Stop reading" }).waitFor();
    await page.getByRole("button", { name: "Read aloud" }).waitFor(); // it has come to its end
    assert.deepEqual(spoken, ["First sentence.", "Second one.", "The end."]);
    status = 500;
    await page.getByRole("button", { name: "Read aloud" }).click();
    await page.getByText("the audio server is out of order").first().waitFor();
    await until(() => spoken.length === 6, "each sentence is tried"); // none comes late, into the next test
    await page.close();
    status = 200;
});

test("a spoken conversation: what is said is sent, the answer is read aloud, and it listens on", async () => {
    spoken = [];
    asked = [];
    words = "tell me more";
    text = "An answer. ".repeat(3);
    const { page } = await open(front.url);
    await page.getByRole("button", { name: "Settings", exact: true }).click();
    await page.getByLabel("Send what I say, and read the answer aloud").check();
    await accessible(page, "settings with audio");
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Speak", exact: true }).click();
    await page.getByRole("button", { name: "Stop recording" }).click();
    await until(() => asked.length, "what was said is sent");
    await until(() => spoken.length, "the answer is read");
    assert.equal(asked[0], "tell me more");
    assert.equal(spoken[0], "An answer.");
    await page.getByRole("button", { name: "Stop recording" }).click(); // it listens on: the next thing that is said
    await until(() => asked.length > 1, "the second thing is sent");
    words = ""; // nobody speaks any more: the conversation ends
    for (let i = 0; i < 20 && (await page.getByRole("button", { name: "Speak", exact: true, disabled: false }).count()) === 0; i++) {
        await page.getByRole("button", { name: "Stop recording" }).click({ timeout: 2000 }).catch(() => {});
        await new Promise((done) => setTimeout(done, 300));
    }
    await page.getByRole("button", { name: "Speak", exact: true }).waitFor();
});

test("without a microphone the page says so", async () => {
    const { page, context } = await open("about:blank");
    await context.addInitScript(() => {
        navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException("no device", "NotFoundError"));
    });
    await page.goto(front.url);
    await page.getByRole("button", { name: "Speak", exact: true }).click();
    await page.getByText("This browser gives the page no microphone: no device").first().waitFor();
});
