// serve.mjs: a running `chimere serve` for the tests here and of the page, on a port and in a folder of its own.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const key = "a-key-of-the-tests";

// options(folder): {args, env} of the server; folder is removed by stop().
export async function start(options) {
    const folder = mkdtempSync(join(tmpdir(), "chimere-serve-"));
    const { args, env } = options(folder);
    const own = { XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder }; // not the user's store, which tests would share
    const model = args.some((a) => a === "-m" || a === "--model") ? [] : ["-m", "nano"]; // whatever else is installed
    const child = spawn(process.env.CHIMERE, ["serve", "--port", "0", "-q", ...model, ...args],
        { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...own, ...env } });
    let text = "";
    const url = await new Promise((resolve, reject) => {
        let first = ""; // of standard output alone: a warning may name another address
        child.stdout.on("data", (data) => {
            text += data;
            first += data;
            const m = /(https?:\/\/[^ ]+) /.exec(first);
            if (m) resolve(m[1]);
        });
        child.stderr.on("data", (data) => (text += data));
        child.on("close", (code) => reject(new Error(`serve ended with ${code}: ${text}`)));
    });
    const ended = new Promise((resolve) => child.on("close", resolve)); // once all of its output is there
    return { url, folder, said: () => text, async stop() {
        child.kill("SIGTERM");
        const code = await ended;
        rmSync(folder, { recursive: true, force: true });
        return code;
    } };
}

// With one API key.
export const serve = (...args) => start((folder) => {
    writeFileSync(join(folder, "keys"), `${key} tests admin\n`);
    return { args: ["--api-key", join(folder, "keys"), ...args] };
});

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
