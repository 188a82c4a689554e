// soon.ts: work that may wait a moment: some of it at once, the rest in tasks of their own, so that none grows long.
const BUDGET_MS = 6;
let until = 0; // of the task that runs now; 0: none has begun
const waiting: (() => void)[] = [];
const channel = new MessageChannel();
channel.port1.onmessage = () => {
    until = performance.now() + BUDGET_MS;
    while (waiting.length && performance.now() < until) waiting.shift()!();
    until = 0;
    if (waiting.length) channel.port2.postMessage(0);
};

// The rest of what somebody does in a task of its own.
export function pause(): Promise<void> {
    return new Promise((ok) => {
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = () => {
            port1.close();
            ok();
        };
        port2.postMessage(0);
    });
}

export function soon(act: () => void): void {
    if (!until) {
        until = performance.now() + BUDGET_MS;
        channel.port2.postMessage(0);
    }
    if (!waiting.length && performance.now() < until) act();
    else waiting.push(act);
}
