// graph.ts: flowcharts in Mermaid's notation -> nodes with their places. The text is hostile: sizes are bounded, and the
// result is data, never markup.
export interface Node {
    id: string;
    lines: string[];
    shape: "box" | "round" | "circle" | "rhomb";
    x: number; // its middle
    y: number;
    w: number;
    h: number;
    rank: number;
}
export interface Edge {
    from: Node;
    to: Node;
    label: string;
    kind: "plain" | "dashed" | "thick";
    arrow: boolean;
}
export interface Graph {
    nodes: Node[];
    edges: Edge[];
    across: boolean; // ranks go from left to right
    w: number;
    h: number;
}
export class GraphError extends Error {
    constructor(
        message: string,
        readonly line: number, // from 1
    ) {
        super(message);
    }
}

const MOST_NODES = 150;
const MOST_EDGES = 400;
const MOST_TEXT = 20_000;
const LINE = 24; // characters of a label's line
const shapes: [string, string, Node["shape"]][] = [
    ["(((", ")))", "circle"], ["((", "))", "circle"], ["([", "])", "round"], ["[[", "]]", "box"], ["[(", ")]", "round"], ["{{", "}}", "rhomb"],
    ["[/", "/]", "box"], ["[\\", "\\]", "box"], ["(", ")", "round"], ["[", "]", "box"], ["{", "}", "rhomb"], [">", "]", "box"],
];

export function wrap(text: string): string[] {
    const lines: string[] = [];
    for (const part of text.replace(/<br\s*\/?>|\\n/gi, "\n").split("\n")) {
        let line = "";
        for (const word of part.trim().split(/\s+/)) {
            const piece = word.slice(0, LINE);
            if (line && line.length + piece.length >= LINE) {
                lines.push(line);
                line = piece;
            } else line = line ? `${line} ${piece}` : piece;
        }
        lines.push(line);
    }
    return lines.length > 4 ? [...lines.slice(0, 3), "…"] : lines;
}

export function makeNode(id: string, label: string, shape: Node["shape"] = "box"): Node {
    const lines = wrap(label);
    const w = Math.max(48, Math.max(...lines.map((l) => l.length)) * 7.5 + (shape === "rhomb" ? 56 : 28));
    const h = lines.length * 18 + (shape === "rhomb" ? 36 : 20);
    return { id, lines, shape, x: 0, y: 0, w: shape === "circle" ? Math.max(w, h) : w, h: shape === "circle" ? Math.max(w, h) : h, rank: 0 };
}

class Reader {
    nodes = new Map<string, Node>();
    edges: Edge[] = [];
    constructor(readonly line: () => number) {}
    fail(what: string): never {
        throw new GraphError(what, this.line());
    }
    // A node at the start of text, and the rest after it.
    node(text: string): [Node, string] {
        const id = /^\s*([\p{L}\p{N}_]+(?:[-.][\p{L}\p{N}_]+)*)/u.exec(text);
        if (!id) this.fail(text.trim().slice(0, 40) || "…");
        let rest = text.slice(id[0].length);
        for (const [open, close, shape] of shapes) {
            if (!rest.startsWith(open)) continue;
            const quoted = /^\s*"/.test(rest.slice(open.length));
            const from = quoted ? rest.indexOf('"', open.length) + 1 : open.length;
            const mark = quoted ? rest.indexOf('"', from) : rest.indexOf(close, from);
            const end = quoted ? rest.indexOf(close, mark) : mark;
            if (mark < 0 || end < 0) this.fail(rest.slice(0, 40));
            this.nodes.set(id[1], makeNode(id[1], rest.slice(from, mark).trim(), shape));
            rest = rest.slice(end + close.length);
            break;
        }
        rest = rest.replace(/^:::[\w-]+/, "");
        let node = this.nodes.get(id[1]);
        if (!node) this.nodes.set(id[1], (node = makeNode(id[1], id[1])));
        if (this.nodes.size > MOST_NODES) this.fail(`> ${MOST_NODES}`);
        return [node, rest];
    }
    group(text: string): [string[], string] {
        const ids: string[] = [];
        for (let rest = text; ; ) {
            const [node, behind] = this.node(rest);
            ids.push(node.id);
            const more = /^\s*&/.exec(behind);
            if (!more) return [ids, behind];
            rest = behind.slice(more[0].length);
        }
    }
    statement(text: string, links: [string, string, Omit<Edge, "from" | "to">][]): void {
        let [from, rest] = this.group(text);
        while (rest.trim()) {
            const worded = /^\s*<?(--|==|-\.)\s+(\S.*?)\s*(-->|---|==>|===|\.->|\.-)/u.exec(rest);
            const m = worded ?? /^\s*<?(-{2,}|={2,}|-\.+-)(>|[xo](?=\s))?\s*(?:\|([^|]*)\|)?/u.exec(rest);
            if (!m) this.fail(rest.trim().slice(0, 40));
            const label = (worded ? m[2] : (m[3] ?? "")).replace(/^"|"$/g, "").trim();
            const arrow = worded ? m[3].endsWith(">") : Boolean(m[2]);
            const kind = m[1].startsWith("=") ? "thick" : m[1].includes(".") ? "dashed" : "plain";
            const [to, behind] = this.group(rest.slice(m[0].length));
            for (const a of from) for (const b of to) links.push([a, b, { label: label.slice(0, 60), kind, arrow }]);
            if (links.length > MOST_EDGES) this.fail(`> ${MOST_EDGES}`);
            from = to;
            rest = behind;
        }
    }
}

// Throws a GraphError where the text is no flowchart that is understood here.
export function readGraph(text: string): Graph {
    if (text.length > MOST_TEXT) throw new GraphError(`> ${MOST_TEXT}`, 1);
    let n = 0;
    let across: boolean | null = null;
    const reader = new Reader(() => n);
    const links: [string, string, Omit<Edge, "from" | "to">][] = [];
    let front = false; // between the lines '---' of a title
    for (const raw of text.split("\n")) {
        n++;
        const line = raw.replace(/%%.*$/, "").trim();
        if (line === "---") front = !front;
        if (!line || line === "---" || front) continue;
        if (across === null) {
            const head = /^(?:graph|flowchart)(?:\s+(TD|TB|BT|LR|RL))?\s*;?$/.exec(line);
            if (!head) throw new GraphError(line.slice(0, 40), n);
            across = head[1] === "LR" || head[1] === "RL";
        } else if (!/^(subgraph|end|classDef|class|style|linkStyle|click|direction|accTitle|accDescr)\b/.test(line)) {
            for (const part of line.split(/;\s*/)) if (part.trim()) reader.statement(part, links);
        }
    }
    if (!reader.nodes.size) throw new GraphError("…", 1);
    const edges = links.map(([a, b, e]) => ({ ...e, from: reader.nodes.get(a)!, to: reader.nodes.get(b)! }));
    return layOut([...reader.nodes.values()], edges, across ?? false);
}

// Ranks by the longest way from a beginning, over edges that close no circle.
function rank(nodes: Node[], edges: Edge[]): void {
    const out = new Map<Node, Node[]>(nodes.map((x) => [x, []]));
    for (const e of edges) if (e.from !== e.to) out.get(e.from)!.push(e.to);
    const state = new Map<Node, number>(); // 1: on the way, 2: done
    const order: Node[] = [];
    const forward = new Map<Node, Node[]>(nodes.map((x) => [x, []]));
    for (const start of nodes) {
        if (state.has(start)) continue;
        const way: [Node, number][] = [[start, 0]];
        state.set(start, 1);
        while (way.length) {
            const top = way[way.length - 1];
            const next = out.get(top[0])![top[1]++];
            if (!next) {
                state.set(top[0], 2);
                order.push(top[0]);
                way.pop();
            } else if (state.get(next) !== 1) {
                forward.get(top[0])!.push(next);
                if (!state.has(next)) {
                    state.set(next, 1);
                    way.push([next, 0]);
                }
            }
        }
    }
    for (const x of order.reverse()) for (const y of forward.get(x)!) y.rank = Math.max(y.rank, x.rank + 1);
}

export function layOut(nodes: Node[], edges: Edge[], across: boolean): Graph {
    const GAP = 28;
    const RANK_GAP = 56;
    rank(nodes, edges);
    const rows: Node[][] = [];
    for (const x of nodes) (rows[x.rank] ??= []).push(x);
    const at = new Map<Node, number>();
    const number = () => rows.forEach((row) => row.forEach((x, i) => at.set(x, i - row.length / 2)));
    number();
    for (let sweep = 0; sweep < 6; sweep++) {
        for (const row of rows) {
            const want = new Map(row.map((x) => {
                const near = edges.filter((e) => e.from !== e.to && (sweep % 2 ? e.from === x : e.to === x)).map((e) => at.get(sweep % 2 ? e.to : e.from)!);
                return [x, near.length ? near.reduce((a, b) => a + b, 0) / near.length : at.get(x)!];
            }));
            row.sort((a, b) => want.get(a)! - want.get(b)!);
        }
        number();
    }
    const side = (x: Node) => (across ? x.h : x.w);
    const deep = (x: Node) => (across ? x.w : x.h);
    const widths = rows.map((row) => row.reduce((n, x) => n + side(x) + GAP, -GAP));
    const whole = Math.max(...widths);
    let depth = 16;
    rows.forEach((row, k) => {
        let along = 16 + (whole - widths[k]) / 2;
        const thick = Math.max(...row.map(deep));
        for (const x of row) {
            const mid = along + side(x) / 2;
            [x.x, x.y] = across ? [depth + thick / 2, mid] : [mid, depth + thick / 2];
            along += side(x) + GAP;
        }
        depth += thick + RANK_GAP;
    });
    depth += 16 - RANK_GAP;
    return { nodes, edges, across, w: across ? depth : whole + 32, h: across ? whole + 32 : depth };
}
