// graph.ts: places for the nodes of a graph in layers, from left to right. The result is data, never markup.
export interface Node {
    lines: string[];
    isEnd: boolean;
    x: number; // its middle
    y: number;
    w: number;
    h: number;
}
export interface Graph {
    layers: Node[][]; // each node of a layer leads to each of the next one
    w: number;
    h: number;
}

const LINE = 24; // characters of a label's line
const GAP = 28;
const LAYER_GAP = 56;

function wrap(text: string): string[] {
    const lines: string[] = [];
    let line = "";
    for (const word of text.trim().split(/\s+/)) {
        const piece = word.slice(0, LINE);
        if (line && line.length + piece.length >= LINE) {
            lines.push(line);
            line = piece;
        } else line = line ? `${line} ${piece}` : piece;
    }
    lines.push(line);
    return lines.length > 4 ? [...lines.slice(0, 3), "…"] : lines;
}

function makeNode(label: string, isEnd: boolean): Node {
    const lines = wrap(label);
    return { lines, isEnd, x: 0, y: 0, w: Math.max(48, Math.max(...lines.map((l) => l.length)) * 7.5 + 28), h: lines.length * 18 + 20 };
}

export function layOut(labels: string[][]): Graph {
    const layers = labels.map((layer, i) => layer.map((label) => makeNode(label, i === 0 || i === labels.length - 1)));
    const heights = layers.map((layer) => layer.reduce((n, x) => n + x.h + GAP, -GAP));
    const whole = Math.max(...heights);
    let left = 16;
    layers.forEach((layer, k) => {
        let y = 16 + (whole - heights[k]) / 2;
        const wide = Math.max(...layer.map((x) => x.w));
        for (const x of layer) {
            [x.x, x.y] = [left + wide / 2, y + x.h / 2];
            y += x.h + GAP;
        }
        left += wide + LAYER_GAP;
    });
    return { layers, w: left + 16 - LAYER_GAP, h: whole + 32 };
}
