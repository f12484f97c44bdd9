// The parser or a pipeline as a graph, with the path of a packet through it.

import dagre from "@dagrejs/dagre";
import { curveBasis, line } from "d3-shape";
import { select } from "d3-selection";
import { zoom, zoomIdentity, type ZoomBehavior } from "d3-zoom";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { buttonOf } from "../shared/keyboard";
import type { Graph, GraphNode } from "./types";

const LETTER = 7.1;
const HEIGHT = 30;
const LONGEST = 30;

function shown(label: string): string {
  return label.length > LONGEST ? `${label.slice(0, LONGEST - 1)}…` : label;
}

interface Placed {
  nodes: (GraphNode & { x: number; y: number; width: number })[];
  edges: { from: string; to: string; label: string; path: string; x: number; y: number }[];
  width: number;
  height: number;
}

const curve = line<{ x: number; y: number }>(
  (point) => point.x,
  (point) => point.y,
).curve(curveBasis);

function layOut(graph: Graph): Placed {
  const made = new dagre.graphlib.Graph({ multigraph: false });
  made.setGraph({ rankdir: "TB", nodesep: 26, ranksep: 34, edgesep: 14, marginx: 10, marginy: 10 });
  made.setDefaultEdgeLabel(() => ({}));
  for (const node of graph.nodes) {
    made.setNode(node.id, { width: shown(node.label).length * LETTER + 26, height: HEIGHT });
  }
  for (const edge of graph.edges) {
    made.setEdge(edge.from, edge.to, {
      width: shown(edge.label).length * 6.2 + 4,
      height: edge.label ? 12 : 0,
      labelpos: "c",
    });
  }
  dagre.layout(made);
  const size = made.graph();
  const nodes = graph.nodes.map((node) => {
    const { x = 0, y = 0, width = 0 } = made.node(node.id);
    return { ...node, x, y, width };
  });
  return {
    nodes: nodes.sort((a, b) => a.y - b.y || a.x - b.x), // the order of the Tab key
    edges: graph.edges.map((edge) => {
      const found = made.edge(edge.from, edge.to);
      return { ...edge, path: curve(found.points ?? []) ?? "", x: found.x ?? 0, y: found.y ?? 0 };
    }),
    width: size.width ?? 100,
    height: size.height ?? 100,
  };
}

interface Properties {
  graph: Graph;
  /** The nodes that the packet has been at, in order; the last is where it is. */
  way: string[];
  onChoose: (node: GraphNode) => void;
}

export function GraphView({ graph, way, onChoose }: Properties) {
  const placed = useMemo(() => layOut(graph), [graph]);
  const svg = useRef<SVGSVGElement>(null);
  const [transform, setTransform] = useState("");
  const behaviour = useRef<ZoomBehavior<SVGSVGElement, unknown> | null>(null);
  const current = way.at(-1);
  const been = new Set(way);
  const taken = new Set(way.slice(1).map((node, index) => `${way[index]} ${node}`));

  useEffect(() => {
    const zooming = zoom<SVGSVGElement, unknown>()
      .scaleExtent([0.15, 2.5])
      .on("zoom", (event) => setTransform(String(event.transform)));
    behaviour.current = zooming;
    select(svg.current!).call(zooming).on("dblclick.zoom", null);
  }, []);

  // The whole graph if it can be read then; otherwise the part around the current node.
  useEffect(() => {
    const place = () => {
      const box = svg.current!.getBoundingClientRect();
      if (!box.width) return;
      const whole = Math.min(box.width / placed.width, box.height / placed.height, 1.15);
      const scale = Math.max(whole, 0.78);
      const node = placed.nodes.find((each) => each.id === (current ?? graph.initial));
      const fits = whole >= scale;
      const x = fits || !node ? placed.width / 2 : node.x;
      const y = fits || !node ? placed.height / 2 : node.y;
      const moved = zoomIdentity.translate(box.width / 2 - x * scale, box.height / 2 - y * scale).scale(scale);
      behaviour.current!.transform(select(svg.current!), moved);
    };
    place();
    const watcher = new ResizeObserver(place);
    watcher.observe(svg.current!);
    return () => watcher.disconnect();
  }, [placed, current]);

  return (
    <svg ref={svg} class="graph" role="group" aria-label={`Graph of the ${graph.name}`}>
      <defs>
        {["plain", "taken"].map((kind) => (
          <marker key={kind} id={`arrow-${kind}`} class={kind} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
            <path d="M0 0L8 4L0 8Z" />
          </marker>
        ))}
      </defs>
      <g transform={transform}>
        {placed.edges.map((edge) => {
          const is = taken.has(`${edge.from} ${edge.to}`);
          return (
            <g key={`${edge.from} ${edge.to}`} class={`edge ${is ? "taken" : ""}`}>
              <path d={edge.path} marker-end={`url(#arrow-${is ? "taken" : "plain"})`} />
              {edge.label && (
                <text x={edge.x} y={edge.y}>
                  {shown(edge.label)}
                </text>
              )}
            </g>
          );
        })}
        {placed.nodes.map((node) => (
          <g
            key={node.id}
            class={`box ${node.kind} ${been.has(node.id) ? "been" : ""} ${node.id === current ? "current" : ""}`}
            transform={`translate(${node.x} ${node.y})`}
            aria-label={node.label}
            {...buttonOf(() => onChoose(node))}
            aria-current={node.id === current ? "step" : undefined}
          >
            <title>{node.label}</title>
            <rect
              x={-node.width / 2}
              y={-HEIGHT / 2}
              width={node.width}
              height={HEIGHT}
              rx={node.kind === "table" ? 3 : node.kind === "branch" ? 10 : HEIGHT / 2}
            />
            <text>{shown(node.label)}</text>
          </g>
        ))}
      </g>
    </svg>
  );
}
