// Graph.tsx: a graph as a picture.
import type { Edge, Graph as GraphData, Node } from "../lib/graph";

function Shape({ node }: { node: Node }) {
    const { x, y, w, h } = node;
    if (node.shape === "rhomb") return <polygon class="graph-node" points={`${x - w / 2},${y} ${x},${y - h / 2} ${x + w / 2},${y} ${x},${y + h / 2}`} />;
    if (node.shape === "circle") return <circle class="graph-node" cx={x} cy={y} r={w / 2} />;
    return <rect class="graph-node" x={x - w / 2} y={y - h / 2} width={w} height={h} rx={node.shape === "round" ? h / 2 : 6} />;
}

function Text({ x, y, lines, kind }: { x: number; y: number; lines: string[]; kind: string }) {
    return (
        <text class={kind} x={x} y={y - (lines.length - 1) * 9 + 4.500} text-anchor="middle">
            {lines.map((line, i) => <tspan key={i} x={x} dy={i ? 18 : 0}>{line}</tspan>)}
        </text>
    );
}

// From side to side; an edge back goes around.
function way(e: Edge, across: boolean): { d: string; x: number; y: number } {
    const { from: a, to: b } = e;
    if (a === b) {
        const x = a.x + a.w / 2;
        return { d: `M${x},${a.y - 6} C${x + 34},${a.y - 20} ${x + 34},${a.y + 20} ${x + 2},${a.y + 6}`, x: x + 34, y: a.y };
    }
    const ahead = a.rank < b.rank;
    const [x1, y1, x2, y2] = across
        ? ahead ? [a.x + a.w / 2, a.y, b.x - b.w / 2, b.y] : [a.x, a.y + a.h / 2, b.x, b.y + b.h / 2]
        : ahead ? [a.x, a.y + a.h / 2, b.x, b.y - b.h / 2] : [a.x + a.w / 2, a.y, b.x + b.w / 2, b.y];
    const bend = ahead ? (across ? x2 - x1 : y2 - y1) / 2 : 60;
    const d = ahead === across
        ? across ? `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}` : `M${x1},${y1} C${x1 + bend},${y1} ${x2 + bend},${y2} ${x2},${y2}`
        : across ? `M${x1},${y1} C${x1},${y1 + bend} ${x2},${y2 + bend} ${x2},${y2}` : `M${x1},${y1} C${x1},${y1 + bend} ${x2},${y2 - bend} ${x2},${y2}`;
    return { d, x: (x1 + x2) / 2 + (ahead || across ? 0 : 40), y: (y1 + y2) / 2 + (ahead || !across ? 0 : 40) };
}

export function Graph({ graph, name }: { graph: GraphData; name: string }) {
    return (
        <div class="graph" tabIndex={0} role="region" aria-label={name}>
            <svg viewBox={`0 0 ${graph.w + 60} ${graph.h + 10}`} width={graph.w + 60} height={graph.h + 10} role="img" aria-label={`${name}: ${graph.edges.map((e) => `${e.from.lines.join(" ")} → ${e.to.lines.join(" ")}`).join("; ").slice(0, 2000)}`}>
                <defs>
                    <marker id="graph-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="10" markerHeight="10" orient="auto-start-reverse">
                        <path class="graph-head" d="M0 0L8 4L0 8z" />
                    </marker>
                </defs>
                {graph.edges.map((e, i) => {
                    const w = way(e, graph.across);
                    return (
                        <g key={i}>
                            <path class={`graph-edge ${e.kind}`} d={w.d} marker-end={e.arrow ? "url(#graph-arrow)" : undefined} />
                            {e.label ? <Text x={w.x} y={w.y} lines={[e.label]} kind="graph-label" /> : null}
                        </g>
                    );
                })}
                {graph.nodes.map((n) => (
                    <g key={n.id}>
                        <Shape node={n} />
                        <Text x={n.x} y={n.y} lines={n.lines} kind="graph-text" />
                    </g>
                ))}
            </svg>
        </div>
    );
}
