// The drawing of a network: switches and hosts as shapes, links as lines between them. What moves or is chosen on it is
// drawn by the page, as children in the same coordinates.

import type { ComponentChildren } from "preact";
import { buttonOf } from "./keyboard";
import "./network.css";

export interface NetworkNode {
  id: string;
  kind: "host" | "switch";
  x: number;
  y: number;
  /** What is written in it; its id if absent. */
  label?: string;
  /** A class for the page's style sheet. */
  mark?: string;
  width?: number;
  /** If it is higher than others, its label is at its top. */
  height?: number;
}

export interface NetworkLink {
  from: string;
  to: string;
  /** What is written at its middle. */
  label?: string;
  mark?: string;
}

export const NODE_WIDTH = 78;
export const NODE_HEIGHT = 34;
const MARGIN = 6;

interface Properties {
  nodes: NetworkNode[];
  links: NetworkLink[];
  /** What a screen reader reads out. */
  label: string;
  /** The part of the plane that is shown: left, top, width and height. By default all of it. */
  box?: [number, number, number, number];
  /** Called with the id of a node that the reader chooses. */
  onChoose?: (id: string) => void;
  children?: ComponentChildren;
}

function boxOf(nodes: NetworkNode[]): [number, number, number, number] {
  const [xs, ys] = [nodes.map((node) => node.x), nodes.map((node) => node.y)];
  const left = Math.min(...xs) - NODE_WIDTH / 2 - MARGIN;
  const top = Math.min(...ys) - NODE_HEIGHT / 2 - MARGIN;
  const width = Math.max(...xs) + NODE_WIDTH / 2 + MARGIN - left;
  return [left, top, width, Math.max(...ys) + NODE_HEIGHT / 2 + MARGIN - top];
}

export function NetworkDrawing({ nodes, links, label, box, onChoose, children }: Properties) {
  const places = new Map(nodes.map((node) => [node.id, node]));
  return (
    <svg class="network" viewBox={(box ?? boxOf(nodes)).join(" ")} role={onChoose ? "group" : "img"} aria-label={label}>
      {links.map((link) => {
        const from = places.get(link.from);
        const to = places.get(link.to);
        if (!from || !to) return null;
        return (
          <g key={`${link.from} ${link.to}`} class={`link ${link.mark ?? ""}`}>
            <line x1={from.x} y1={from.y} x2={to.x} y2={to.y} />
            {link.label && (
              <text x={(from.x + to.x) / 2} y={(from.y + to.y) / 2 - 5}>
                {link.label}
              </text>
            )}
          </g>
        );
      })}
      {nodes.map((node) => (
        <g
          key={node.id}
          class={`node ${node.kind} ${node.mark ?? ""}`}
          transform={`translate(${node.x} ${node.y})`}
          {...(onChoose && buttonOf(() => onChoose(node.id)))}
        >
          <rect
            x={-(node.width ?? NODE_WIDTH) / 2}
            y={-(node.height ?? NODE_HEIGHT) / 2}
            width={node.width ?? NODE_WIDTH}
            height={node.height ?? NODE_HEIGHT}
            rx={node.kind === "switch" ? 4 : NODE_HEIGHT / 2}
          />
          <text y={(NODE_HEIGHT - (node.height ?? NODE_HEIGHT)) / 2}>{node.label ?? node.id}</text>
        </g>
      ))}
      {children}
    </svg>
  );
}
