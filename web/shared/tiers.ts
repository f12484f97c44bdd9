// Places for the nodes of a network of tiers: hosts at the bottom, and each tier of switches above the one before.

import { NODE_HEIGHT, NODE_WIDTH, type NetworkNode } from "./network";

export interface Tiers {
  hosts: string[];
  /** The switches of each tier, from the hosts up. */
  tiers: string[][];
}

export interface Placed {
  nodes: NetworkNode[];
  /** Left, top, width and height of the drawing. */
  box: [number, number, number, number];
}

const [LOWEST_ROW, HIGHEST_ROW] = [50, 150]; // between the rows, without their heights
const MARGIN = 8;
const BELOW = 18; // for a bar below each host
const WIDEST = 320; // of a switch

/** Hosts get narrower the more there are, so that labels stay large. */
function hostSize(count: number): { width: number; gap: number } {
  if (count > 12) return { width: 34, gap: 5 };
  if (count > 6) return { width: 44, gap: 8 };
  return { width: NODE_WIDTH, gap: 14 };
}

function widest(network: Tiers): number {
  return Math.max(...network.tiers.map((tier) => tier.length), 1);
}

/** The width of a drawing, and the height between its rows. */
function sizeOf(network: Tiers, aspect: number, switchHeight: number): { width: number; row: number } {
  const { width: host, gap } = hostSize(network.hosts.length);
  const rows = network.tiers.length;
  const filled = rows * switchHeight + NODE_HEIGHT + BELOW + MARGIN;
  const needed = Math.max(network.hosts.length * (host + gap), widest(network) * (60 + gap), 4 * NODE_WIDTH);
  const row = (needed / aspect - filled) / rows;
  if (row >= LOWEST_ROW) return { width: needed, row: Math.min(row, HIGHEST_ROW) };
  return { width: (filled + rows * LOWEST_ROW) * aspect, row: LOWEST_ROW };
}

/** How wide a switch can be, next to the others of the widest tier. */
export function switchRoom(network: Tiers, aspect: number, switchHeight: number): number {
  return Math.min(WIDEST, sizeOf(network, aspect, switchHeight).width / widest(network) - 12);
}

/**
 * Returns the nodes with their places.
 *
 * aspect: How wide the drawing should be for its height.
 * switchWidth, switchHeight: The size of a switch.
 */
export function placed(network: Tiers, aspect: number, switchWidth: number, switchHeight: number): Placed {
  const { width, row } = sizeOf(network, aspect, switchHeight);
  const nodes: NetworkNode[] = network.hosts.map((id, number) => ({
    id,
    kind: "host",
    x: (width * (number + 0.5)) / network.hosts.length,
    y: 0,
    width: Math.min(NODE_WIDTH, hostSize(network.hosts.length).width),
  }));
  network.tiers.forEach((tier, number) => {
    const y = -NODE_HEIGHT / 2 - (number + 1) * row - (number + 0.5) * switchHeight;
    tier.forEach((id, place) => {
      const x = (width * (place + 0.5)) / tier.length;
      nodes.push({ id, kind: "switch", x, y, width: switchWidth, height: switchHeight });
    });
  });
  const top = -NODE_HEIGHT / 2 - network.tiers.length * (row + switchHeight) - MARGIN;
  return { nodes, box: [-MARGIN, top, width + 2 * MARGIN, NODE_HEIGHT / 2 + BELOW - top] };
}
