// serve.mjs: a running `chimere serve` for the tests beside it, on a port of its own, with one API key.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const key = "a-key-of-the-tests";

export async function serve(...args) {
    const folder = mkdtempSync(join(tmpdir(), "chimere-clients-"));
    writeFileSync(join(folder, "keys"), `${key} tests admin\n`);
    const child = spawn(process.env.CHIMERE, ["serve", "--port", "0", "-q", "--api-key", join(folder, "keys"), ...args],
        { stdio: ["ignore", "pipe", "pipe"] });
    let text = "";
    const url = await new Promise((resolve, reject) => {
        const read = (data) => {
            text += data;
            const m = /(https?:\/\/[^ ]+)/.exec(text);
            if (m) resolve(m[1]);
        };
        child.stdout.on("data", read);
        child.stderr.on("data", read);
        child.on("exit", (code) => reject(new Error(`serve ended with ${code}: ${text}`)));
    });
    const ended = new Promise((resolve) => child.on("exit", resolve));
    return { url, said: () => text, async stop() {
        child.kill("SIGTERM");
        const code = await ended;
        rmSync(folder, { recursive: true });
        return code;
    } };
}

// What the small model that ships here does well.
export const question = "What is 12 plus 30?";
export const calculator = { name: "calculator", description: "Calculator.", parameters: { type: "object",
    properties: { expression: { type: "string", description: "The expression" } }, required: ["expression"] } };
export const toolQuestion = "Please evaluate 6157 - 7343.";
export function calculate(text) {
    if (!/^[-+*/(). 0-9]{1,100}$/.test(text)) return "error: expected numbers and + - * /";
    return `${text} = ${Function(`"use strict"; return (${text})`)()}`;
}
export const person = { type: "object", properties: { name: { type: "string", maxLength: 12 }, adult: { type: "boolean" } },
    required: ["name", "adult"], additionalProperties: false };
