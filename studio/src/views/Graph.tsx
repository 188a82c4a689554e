// Graph.tsx: a graph as a picture.
import type { Graph as GraphData, Node } from "../lib/graph";

// From side to side.
function way(a: Node, b: Node): string {
    const [x1, x2] = [a.x + a.w / 2, b.x - b.w / 2];
    const bend = (x2 - x1) / 2;
    return `M${x1},${a.y} C${x1 + bend},${a.y} ${x2 - bend},${b.y} ${x2},${b.y}`;
}

export function Graph({ graph, name }: { graph: GraphData; name: string }) {
    const edges = graph.layers.slice(1).flatMap((layer, i) => graph.layers[i].flatMap((from) => layer.map((to) => [from, to])));
    return (
        <div class="graph" tabIndex={0} role="region" aria-label={name}>
            <svg viewBox={`0 0 ${graph.w} ${graph.h}`} width={graph.w} height={graph.h} role="img" aria-label={`${name}: ${edges.map(([a, b]) => `${a.lines.join(" ")} → ${b.lines.join(" ")}`).join("; ").slice(0, 2000)}`}>
                <defs>
                    <marker id="graph-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="10" markerHeight="10" orient="auto-start-reverse">
                        <path class="graph-head" d="M0 0L8 4L0 8z" />
                    </marker>
                </defs>
                {edges.map(([a, b], i) => <path key={i} class="graph-edge" d={way(a, b)} marker-end="url(#graph-arrow)" />)}
                {graph.layers.flat().map((n, i) => (
                    <g key={i}>
                        <rect class="graph-node" x={n.x - n.w / 2} y={n.y - n.h / 2} width={n.w} height={n.h} rx={n.isEnd ? n.h / 2 : 6} />
                        <text class="graph-text" x={n.x} y={n.y - (n.lines.length - 1) * 9 + 4.5} text-anchor="middle">
                            {n.lines.map((line, k) => <tspan key={k} x={n.x} dy={k ? 18 : 0}>{line}</tspan>)}
                        </text>
                    </g>
                ))}
            </svg>
        </div>
    );
}
