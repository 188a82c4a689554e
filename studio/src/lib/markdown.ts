// markdown.ts: text of a model becomes nodes. The text is hostile: raw HTML is shown as text (html: false), the result
// goes through DOMPurify with a list of what is allowed, remote images become links, and size is bounded.
import DOMPurify from "dompurify";
import MarkdownIt from "markdown-it";

const MAX_LINE = 20_000; // longer ones are shown as they are
const MAX_BLOCK = 60_000;
const MAX_PIPES = 200; // columns of a table

const md = new MarkdownIt("default", { html: false, linkify: true, typographer: false, breaks: false, maxNesting: 24 });
md.disable(["linkify"]);
md.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
md.enable(["linkify"]);

// Mathematics: $x$, $$x$$, \(x\), \[x\]. Rendered later, by math.ts.
function mathInline(state: any, silent: boolean): boolean {
    const text: string = state.src;
    const from: number = state.pos;
    const pairs: [string, string][] = [["$$", "$$"], ["$", "$"], ["\\(", "\\)"], ["\\[", "\\]"]];
    for (const [open, close] of pairs) {
        if (!text.startsWith(open, from)) continue;
        const begin = from + open.length;
        const end = text.indexOf(close, begin);
        if (end < 0 || end - begin > 4000 || end === begin) return false;
        const body = text.slice(begin, end);
        // "$5 and $6" is money
        if (open === "$" && (/^\s|\s$|\n\n/.test(body) || /[0-9]/.test(text[end + 1] ?? ""))) return false;
        if (!silent) {
            const token = state.push("math", "", 0);
            token.content = body.trim();
            token.markup = open;
        }
        state.pos = end + close.length;
        return true;
    }
    return false;
}
md.inline.ruler.before("escape", "math", mathInline);

function mathBlock(state: any, start: number, stop: number, silent: boolean): boolean {
    const at = (n: number) => state.src.slice(state.bMarks[n] + state.tShift[n], state.eMarks[n]) as string;
    const first = at(start);
    const [open, close] = first.startsWith("$$") ? ["$$", "$$"] : first.startsWith("\\[") ? ["\\[", "\\]"] : ["", ""];
    if (!open) return false;
    let body = first.slice(2);
    let n = start;
    if (body.trimEnd().endsWith(close)) {
        body = body.trimEnd().slice(0, -2);
    } else {
        for (n = start + 1; n < stop && !at(n).trimEnd().endsWith(close); n++) body += "\n" + at(n);
        if (n >= stop) return false;
        body += "\n" + at(n).trimEnd().slice(0, -2);
    }
    if (silent) return true;
    const token = state.push("math", "", 0);
    token.block = true;
    token.content = body.trim();
    token.markup = open;
    token.map = [start, n + 1];
    state.line = n + 1;
    return true;
}
md.block.ruler.before("fence", "math", mathBlock, { alt: ["paragraph"] });

const rules = md.renderer.rules as any;
const escape = md.utils.escapeHtml;
rules.math = (tokens: any[], i: number) => {
    const { content, markup, block } = tokens[i];
    const display = block || markup === "$$" || markup === "\\[";
    return `<span class="${display ? "math display" : "math"}">${escape(content)}</span>`;
};
rules.image = (tokens: any[], i: number) => {
    const src = tokens[i].attrGet("src") ?? "";
    return `<a class="image" href="${escape(src)}">${escape(tokens[i].content || src)}</a>`;
};
for (const cell of ["th_open", "td_open"]) {
    rules[cell] = (tokens: any[], i: number) => {
        const align = /text-align:(\w+)/.exec(tokens[i].attrGet("style") ?? "")?.[1];
        return `<${tokens[i].tag}${align ? ` class="${align}"` : ""}${cell === "th_open" ? ' scope="col"' : ""}>`;
    };
}

const allowed = {
    ALLOWED_TAGS: "a b blockquote br code del em h1 h2 h3 h4 h5 h6 hr i li ol p pre s span strong table tbody td th thead tr ul".split(" "),
    ALLOWED_ATTR: ["href", "title", "class", "start", "scope", "target", "rel"],
    ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|#)/i,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true as const,
};
DOMPurify.addHook("afterSanitizeAttributes", (node) => {
    if (node.tagName !== "A") return;
    const href = node.getAttribute("href");
    if (!href) return;
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
    node.setAttribute("title", href);
});

export function sanitise(html: string): DocumentFragment {
    return DOMPurify.sanitize(html, allowed) as unknown as DocumentFragment;
}
const mathTags = "math semantics mrow mi mn mo ms mtext mspace mfrac msqrt mroot mstyle merror mpadded mphantom menclose msub msup msubsup munder mover munderover mmultiscripts mtable mtr mtd annotation span".split(" ");
export function sanitiseMath(html: string): DocumentFragment {
    return DOMPurify.sanitize(html, {
        ALLOWED_TAGS: mathTags,
        ALLOWED_ATTR: "class mathvariant stretchy fence separator lspace rspace minsize maxsize accent accentunder displaystyle scriptlevel linethickness columnalign rowspacing columnspacing rowalign width height depth notation encoding xmlns display symmetric largeop movablelimits columnlines rowlines".split(" "),
        RETURN_DOM_FRAGMENT: true,
    }) as unknown as DocumentFragment;
}

function tooWide(text: string): boolean {
    if (text.length > MAX_BLOCK) return true;
    for (const line of text.split("\n"))
        if (line.length > MAX_LINE || (line.length > 2 * MAX_PIPES && line.split("|").length > MAX_PIPES)) return true;
    return false;
}

function plain(text: string): DocumentFragment {
    const out = document.createDocumentFragment();
    const p = document.createElement("pre");
    p.className = "plain";
    p.tabIndex = 0;
    const shown = text.slice(0, MAX_BLOCK);
    p.textContent = shown;
    out.append(p);
    if (shown.length < text.length) {
        const note = document.createElement("p");
        note.className = "cut";
        note.textContent = `… ${(text.length - shown.length).toLocaleString()} more characters; “Copy” has them all.`;
        out.append(note);
    }
    return out;
}

// One block or a few: nodes, as they may be shown.
export function render(text: string): DocumentFragment {
    if (tooWide(text)) return plain(text);
    return sanitise(md.render(text));
}

// Where the last top-level block of the text begins: what is before it will not change any more.
export function lastBlock(text: string): number {
    if (tooWide(text)) return 0;
    const tokens = md.parse(text, {});
    let line = 0;
    let blocks = 0;
    for (const t of tokens)
        if (t.level === 0 && t.map && t.nesting >= 0) {
            line = t.map[0];
            blocks++;
        }
    if (blocks < 2) return 0;
    let at = 0;
    for (let i = 0; i < line; i++) at = text.indexOf("\n", at) + 1;
    return at;
}
