// A model made smaller: its goal refused in a sentence, the file made with progress and pictures, the search stopped.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { accessible, closeAll, open, serve, shot } from "./browser.mjs";

const LONG = { timeout: 200_000 };
let server, models;
before(async () => {
    server = await serve();
    models = join(server.folder, "chimere", "models");
    mkdirSync(models, { recursive: true });
    execFileSync(process.env.CHIMERE, ["synth", "qwen35moe-mini", "q8", join(models, "Tiny-Q8_0.gguf"), "--layers", "1", "--experts", "2", "--vocab", "512"]);
    copyFileSync(join(dirname(process.env.CHIMERE), "chimere-nano.gguf"), join(models, "nano.gguf"));
});
after(async () => {
    await closeAll();
    await server.stop();
});

test("a goal that cannot be met is said, then the file is made, with its figures and pictures", async () => {
    const { page, seen } = await open(`${server.url}/#/models`);
    await page.getByRole("button", { name: "Make it smaller: Tiny-Q8_0" }).click();
    const dialog = page.getByRole("dialog", { name: "Make Tiny-Q8_0 smaller" });
    const name = dialog.getByRole("textbox", { name: "Name of the new model" });
    assert.equal(await name.inputValue(), "Tiny-3.5bpw");
    await dialog.getByRole("radio", { name: "Fit a graphics card" }).check();
    await dialog.getByRole("combobox", { name: "Graphics card" }).selectOption({ index: 0 });
    await dialog.getByRole("spinbutton", { name: "Tokens of context" }).waitFor();
    await dialog.getByRole("radio", { name: "Size of the file" }).check();
    await dialog.getByRole("textbox", { name: "Size of the file, such as 14.2G" }).fill("14,2 G");
    assert.equal(await name.inputValue(), "Tiny-14.2G");
    await dialog.getByRole("radio", { name: "Bits per weight" }).check();
    const file = dialog.getByLabel(/Text to calibrate on/);
    await file.setInputFiles({ name: "bad.exe", mimeType: "application/octet-stream", buffer: Buffer.from("MZ") });
    await dialog.getByRole("alert").filter({ hasText: "expected a .txt or .md file" }).waitFor();
    await file.setInputFiles({ name: "text.md", mimeType: "text/markdown", buffer: Buffer.from("The ferry leaves at nine.\n".repeat(40)) });
    await dialog.getByRole("alert").waitFor({ state: "hidden" });
    await dialog.getByRole("checkbox", { name: /Only predict/ }).check();
    await accessible(page, "make it smaller");
    await shot(page, "ramp");

    await dialog.getByRole("spinbutton", { name: "Bits per weight" }).fill("0.6");
    await dialog.getByRole("button", { name: "Start" }).click();
    await dialog.getByRole("alert").filter({ hasText: "the smallest file that these types give" }).waitFor(LONG);

    await dialog.getByRole("spinbutton", { name: "Bits per weight" }).fill("4");
    assert.equal(await name.inputValue(), "Tiny-4bpw");
    const asked = page.waitForRequest((r) => r.method() === "POST" && r.url().endsWith("/chimere/v1/ramp"));
    await page.keyboard.press("Enter"); // in the field of the bits
    const { text, ...rest } = (await asked).postDataJSON();
    assert.deepEqual(rest, { model: "Tiny-Q8_0", out: "Tiny-4bpw", bpw: 4, mode: "portable", predict: true });
    assert.match(text, /^The ferry/);
    await dialog.getByText("Tiny-4bpw is on disk").waitFor(LONG);
    const bits = await dialog.locator(".tile").filter({ hasText: "Bits per weight" }).locator("dd").innerText();
    assert.ok(Number(bits) > 3.9 && Number(bits) <= 4, bits);
    for (const picture of ["Divergence against bits per weight", "Type of each tensor, by layer"]) {
        const img = dialog.getByRole("img", { name: picture });
        await img.waitFor();
        assert.ok(await img.evaluate((el) => el.decode().then(() => el.naturalWidth > 0)), picture);
    }
    await accessible(page, "made smaller");
    await shot(page, "ramp-made");
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "hidden" });
    await page.locator(".card").filter({ hasText: "Tiny-4bpw" }).waitFor();
    assert.ok(existsSync(join(models, "Tiny-4bpw.gguf")));
    assert.deepEqual(seen.errors, []);
});

test("a search goes on while its dialog is closed, and stops when told, on a phone, in French", async () => {
    const { page, seen } = await open(`${server.url}/#/models`, { colorScheme: "dark", locale: "fr-FR", viewport: { width: 360, height: 740 } });
    const make = page.getByRole("button", { name: "Le rendre plus petit : nano" });
    const dialog = page.getByRole("dialog", { name: "Rendre nano plus petit" });
    await make.click();
    await dialog.getByRole("button", { name: "Démarrer" }).click(); // measured: minutes
    await dialog.getByRole("progressbar").waitFor();
    await accessible(page, "making it smaller, dark, phone");
    await shot(page, "ramp-phone-dark-fr");
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "hidden" });
    await make.click();
    await dialog.getByRole("button", { name: "Arrêter" }).click();
    await dialog.getByRole("alert").filter({ hasText: "Redémarrer avec le même objectif" }).waitFor();
    await dialog.getByRole("button", { name: "Démarrer" }).waitFor();
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= 360));
    assert.ok(!existsSync(join(models, "nano-3.5bpw.gguf")));
    assert.deepEqual(seen.errors, []);
});
