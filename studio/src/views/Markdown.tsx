// Markdown.tsx: a text as nodes. While it grows, blocks that are complete stay as they are and the last one alone is
// rendered again, so that the cost of a token does not depend on the length of the answer.
import { useLayoutEffect, useRef } from "preact/hooks";
import { decorate } from "../lib/decorate";
import { lastBlock, render } from "../lib/markdown";
import { soon } from "../lib/soon";

const OPEN_MAX = 12_000; // an open block longer than this grows as plain text until it is complete

interface Grown {
    done: number; // characters of complete blocks
    open: HTMLElement;
    shown: string;
}

export function Markdown({ text, growing, revision }: { text: string; growing: boolean; revision?: number }) {
    const root = useRef<HTMLDivElement>(null);
    const state = useRef<Grown | null>(null);
    useLayoutEffect(() => {
        const el = root.current!;
        if (!state.current && !growing) {
            let wanted = true;
            soon(() => wanted && show(el));
            if (!el.childElementCount) el.textContent = text.slice(0, 400);
            return () => void (wanted = false);
        }
        show(el);
        return undefined;
    }, [text, growing, revision]);
    const show = (el: HTMLElement) => {
        let s = state.current;
        if (!s || !text.startsWith(s.shown.slice(0, s.done))) {
            el.replaceChildren();
            const open = document.createElement("div");
            open.className = "open";
            el.append(open);
            s = state.current = { done: 0, open, shown: "" };
        } else if (s.shown === text && growing) {
            return;
        }
        const tail = text.slice(s.done);
        if (growing && tail.length > OPEN_MAX) {
            grow(s, tail);
        } else {
            const cut = growing ? lastBlock(tail) : 0;
            if (cut) {
                const nodes = render(tail.slice(0, cut));
                decorate(nodes, true);
                s.open.before(nodes);
                s.done += cut;
            }
            const nodes = render(text.slice(s.done));
            decorate(nodes, !growing);
            s.open.replaceChildren(nodes);
        }
        s.shown = text;
    };
    return <div class="markdown" ref={root} />;
}

function grow(s: Grown, tail: string): void {
    const pre = s.open.firstElementChild;
    const node = pre?.firstChild;
    const before = s.shown.slice(s.done);
    if (s.open.childElementCount === 1 && pre!.className === "plain growing" && node instanceof Text && tail.startsWith(before)) {
        node.appendData(tail.slice(before.length));
        return;
    }
    const fresh = document.createElement("pre");
    fresh.className = "plain growing";
    fresh.textContent = tail;
    s.open.replaceChildren(fresh);
}
