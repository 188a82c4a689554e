// math.ts: loaded when a text has formulas. MathML alone: browsers have the fonts.
import katex from "katex";
import { sanitiseMath } from "./markdown";

export function fill(el: HTMLElement): void {
    const tex = el.textContent ?? "";
    try {
        const html = katex.renderToString(tex, {
            output: "mathml",
            displayMode: el.classList.contains("display"),
            throwOnError: true,
            trust: false,
            maxExpand: 200,
            maxSize: 20,
            strict: "ignore",
        });
        el.replaceChildren(sanitiseMath(html));
        el.classList.add("done");
    } catch {
        el.classList.add("done", "wrong"); // the source stays
    }
}
