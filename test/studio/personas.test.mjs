// What a user sets up for answers: personas, a budget of thinking, ratings of answers that are too short to be learned.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { accessible, ask, closeAll, open, serve, shot } from "./browser.mjs";
import { begin, frame, proxy } from "./proxy.mjs";

let server, front, bodies = [], answer = "Aye.", thoughts = 0, reasoning = 0;
before(async () => {
    server = await serve();
    front = await proxy(server.url, (req, res) => {
        if (req.url !== "/v1/chat/completions") return false;
        const parts = [];
        req.on("data", (d) => parts.push(d));
        req.on("end", () => {
            bodies.push(JSON.parse(Buffer.concat(parts)));
            begin(res, { "x-odo-answer": "odo_0000000000000001" });
            for (let i = 0; i < thoughts; i++) res.write(frame({ reasoning_content: "hm " }));
            res.write(frame({ content: answer }));
            const usage = { prompt_tokens: 9, completion_tokens: 9, completion_tokens_details: { reasoning_tokens: reasoning } };
            res.end(`data: ${JSON.stringify({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }], usage })}\n\ndata: [DONE]\n\n`);
        });
        return true;
    });
});
after(async () => {
    await closeAll();
    await front.stop();
    await server.stop();
});

test("a persona is written, chosen, edited, used in this conversation alone, and deleted", async () => {
    const { page, context, seen } = await open(front.url);
    await page.getByRole("button", { name: "Settings of this chat" }).click();
    await page.getByRole("button", { name: "Edit personas" }).click();
    const dialog = page.getByRole("dialog", { name: "Personas" });
    await dialog.getByText("No personas yet").waitFor();
    await dialog.getByRole("button", { name: "New persona" }).click();
    await page.keyboard.type("Pirate");
    await dialog.getByLabel("How it writes").fill("You are a pirate.");
    await accessible(page, "a persona");
    await shot(page, "persona-new");
    await dialog.getByRole("button", { name: "Save" }).click();
    await dialog.getByRole("radio", { name: /Pirate/, checked: true }).waitFor(); // the one just written is meant
    await dialog.getByRole("button", { name: "New persona" }).click();
    await page.keyboard.type("Pirate");
    await dialog.getByLabel("How it writes").fill("Another.");
    await dialog.getByRole("button", { name: "Save" }).click();
    await dialog.getByRole("alert").filter({ hasText: "another persona is called 'Pirate'" }).waitFor();
    await dialog.getByLabel("Name").fill("Teacher");
    await dialog.getByRole("button", { name: "Save" }).click();
    await dialog.getByRole("radio", { name: /Pirate/ }).check();
    await dialog.getByRole("button", { name: "Edit Pirate" }).click();
    await dialog.getByLabel("How it writes").fill("You are a pirate of few words.");
    await dialog.getByRole("button", { name: "Save" }).click();
    await dialog.getByText("of few words").waitFor();
    await accessible(page, "personas");
    await shot(page, "personas");
    await page.keyboard.press("Escape");
    await page.getByLabel("System prompt").fill("Answer in Dutch.");
    await page.getByLabel("System prompt").blur();
    await ask(page, "Who are you?");
    assert.deepEqual(bodies.at(-1).messages[0], { role: "system", content: "You are a pirate of few words.\n\nAnswer in Dutch." });
    await page.reload();
    await page.locator(".turn.assistant").waitFor();
    await ask(page, "Again?");
    assert.match(bodies.at(-1).messages[0].content, /^You are a pirate of few words/);
    await page.getByRole("button", { name: "New chat" }).click();
    await ask(page, "And here?");
    assert.ok(bodies.at(-1).messages.every((m) => m.role !== "system"));
    const { page: other } = await open(front.url, { locale: "fr-FR" }); // another browser, the same key
    await other.getByRole("button", { name: "Réglages de cette discussion" }).click();
    await other.getByRole("combobox", { name: "Persona", exact: true }).selectOption("Teacher");
    await other.getByRole("button", { name: "Modifier les personas" }).click();
    await other.getByRole("button", { name: "Supprimer Teacher" }).click();
    await other.getByRole("radio", { name: /Teacher/ }).waitFor({ state: "hidden" });
    await other.getByRole("radio", { name: "Sans persona", checked: true }).waitFor();
    assert.deepEqual((await (await fetch(`${server.url}/chimere/v1/personas`)).json()).data.map((p) => p.name), ["Pirate"]);
    assert.deepEqual(seen.errors, []);
    await context.close();
});

test("thinking shows its time and how much of its budget it used", async () => {
    thoughts = 40;
    reasoning = 1536;
    const { page, seen } = await open(front.url);
    await page.getByRole("button", { name: "Settings of this chat" }).click();
    await page.getByRole("combobox", { name: "Thinking", exact: true }).selectOption("low");
    await ask(page, "Think.");
    assert.deepEqual([bodies.at(-1).reasoning_effort, bodies.at(-1).thinking_budget], ["low", undefined]); // the server knows the budget
    const fold = page.locator("summary").filter({ hasText: "Thought for" });
    await fold.filter({ hasText: /[0-9.]+ s/ }).filter({ hasText: "1,536 of 2,048 tokens" }).waitFor();
    assert.equal(await fold.getByRole("meter", { name: "Budget of thinking" }).evaluate((m) => m.value / m.max), 0.75);
    await accessible(page, "budget of thinking");
    await shot(page, "thinking-budget");
    reasoning = 300;
    await page.getByLabel("Maximum thinking tokens").fill("300");
    await page.getByLabel("Maximum thinking tokens").blur();
    await ask(page, "Think less.");
    assert.equal(bodies.at(-1).thinking_budget, 300);
    await page.getByText("the budget is spent").waitFor();
    await page.reload(); // it is kept with the answer
    await page.getByText("1,536 of 2,048 tokens").waitFor();
    await page.getByRole("button", { name: "Settings of this chat" }).click();
    await page.getByRole("combobox", { name: "Thinking", exact: true }).selectOption("none");
    await page.getByLabel("Maximum thinking tokens").waitFor({ state: "hidden" });
    thoughts = 0;
    await ask(page, "Do not think.");
    assert.equal(bodies.at(-1).thinking_budget, undefined);
    assert.deepEqual(seen.errors, []);
});

test("a good rating of an answer that is too short to be learned says so", async () => {
    const { page } = await open(front.url);
    for (const [text, short] of [["Nineteen characters", true], ["Twenty characters it", false]]) {
        answer = text;
        await ask(page, "Hello?");
        await page.locator(".turn").last().getByRole("button", { name: "Good answer" }).click();
        const note = page.getByText("Answers shorter than 20 characters are not learned.").first();
        if (short) await note.waitFor();
        else await page.locator(".turn").last().getByRole("button", { name: "Good answer", pressed: true }).waitFor();
        if (!short) assert.equal(await note.count(), 0);
        await page.reload();
        await page.locator(".turn.assistant").first().waitFor();
    }
});
