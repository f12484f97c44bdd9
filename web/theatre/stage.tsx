// One point on the stage: its network, which Preact draws once, and a canvas above it for all that moves.

import { effect, useComputed } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { NetworkDrawing, NODE_HEIGHT, type NetworkNode } from "../shared/network";
import { theme } from "../shared/theme";
import { placed, switchRoom } from "../shared/tiers";
import { dimmed, follow, time, wantedChunk } from "./player";
import { timeText, type Cell, type Change, type Flight, type Scene } from "./recording";

const CELL_GAP = 2;
const ASIDE = 4.5; // from the middle of a link to the packets of each direction
const CROSS = 5;
const COLOURS: Record<string, string> = {
  values: "--series-1",
  sums: "--good",
  "between hosts": "--series-2",
  acknowledgements: "--series-4",
  "other traffic": "--quiet",
};
export const WORDS: Record<string, string> = {
  values: "values to add up",
  sums: "sums",
  "between hosts": "values between workers",
  acknowledgements: "acknowledgements",
  "other traffic": "packets of others",
};

interface Place {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** How cells of a switch are arranged. */
interface Grid {
  size: number;
  columns: number;
  rows: number;
}

/** The largest cells of which `count` fit into a switch that is so wide, in as few rows as possible. */
function gridOf(count: number, width: number): Grid {
  for (const [size, most] of [[18, 1], [15, 1], [12, 1], [12, 2], [10, 3], [8, 4], [6, 6]] as const) {
    const columns = Math.max(1, Math.floor((width - 12 + CELL_GAP) / (size + CELL_GAP)));
    const rows = Math.ceil(count / columns);
    if (rows <= most) return { size, columns: Math.ceil(count / rows), rows };
  }
  const columns = Math.floor((width - 12) / (4 + CELL_GAP));
  return { size: 4, columns, rows: Math.ceil(count / columns) };
}

/** What all points on the stage share, so that their networks are drawn alike. */
export interface Looks {
  aspect: number;
  grid: Grid | null;
  switchWidth: number;
  switchHeight: number;
}

export function looksOf(scenes: Scene[], aspect: number): Looks {
  const most = Math.max(0, ...scenes.flatMap((scene) => [...scene.cells.values()].map((cells) => cells.length)));
  let switchHeight = NODE_HEIGHT + (most ? 24 : 0);
  let room = Math.min(...scenes.map((scene) => switchRoom(scene.document, aspect, switchHeight)));
  if (!most) return { aspect, grid: null, switchWidth: Math.min(room, 120), switchHeight };
  const grid = gridOf(most, room);
  switchHeight = NODE_HEIGHT + grid.rows * (grid.size + CELL_GAP) + 6;
  room = Math.min(...scenes.map((scene) => switchRoom(scene.document, aspect, switchHeight)));
  const switchWidth = Math.min(room, Math.max(100, grid.columns * (grid.size + CELL_GAP) + 14));
  return { aspect, grid, switchWidth, switchHeight };
}

interface Drawn {
  nodes: NetworkNode[];
  box: [number, number, number, number];
  places: Map<string, Place>;
  grid: Grid | null;
}

function layout(scene: Scene, { aspect, grid, switchWidth, switchHeight }: Looks): Drawn {
  const { document } = scene;
  const { nodes, box } = placed(document, aspect, switchWidth, switchHeight);
  const workers = new Set(document.workers);
  for (const node of nodes) {
    if (node.kind === "host" && !workers.has(node.id)) node.mark = "bystander";
    if (node.kind === "switch" && !scene.cells.has(node.id)) node.height = NODE_HEIGHT;
  }
  const places = new Map(
    nodes.map(({ id, x, y, width, height }) => [id, { x, y, width: width!, height: height ?? NODE_HEIGHT }]),
  );
  return { nodes, box, places, grid };
}

/** Draws what moves. Its coordinates are those of the network's drawing. */
class Painter {
  private readonly colours = new Map<string, string>();

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly scene: Scene,
    private readonly drawn: Drawn,
  ) {}

  colour(name: string): string {
    let found = this.colours.get(name);
    if (!found) {
      found = getComputedStyle(this.canvas).getPropertyValue(name);
      this.colours.set(name, found);
    }
    return found;
  }

  forgetColours(): void {
    this.colours.clear();
  }

  paint(now: number): void {
    const { canvas, scene } = this;
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth * ratio, canvas.clientHeight * ratio];
    if (canvas.width !== Math.round(width) || canvas.height !== Math.round(height)) {
      canvas.width = Math.round(width);
      canvas.height = Math.round(height);
    }
    const context = canvas.getContext("2d")!;
    const [left, top, wide, high] = this.drawn.box;
    const scale = Math.min(width / wide, height / high);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.setTransform(
      scale,
      0,
      0,
      scale,
      (width - wide * scale) / 2 - left * scale,
      (height - high * scale) / 2 - top * scale,
    );
    for (const [name, cells] of scene.cells) this.paintCells(context, name, cells, now);
    for (const worker of scene.document.workers) this.paintProgress(context, worker, now);
    for (const [link, count] of scene.queues(now)) this.paintQueue(context, link, count);
    for (const [flight, mended] of scene.crosses(now)) this.paintCross(context, flight, mended);
    // What is dimmed lies below.
    const flights = scene.inFlight(now);
    const wanted = follow.value;
    for (const flight of flights) if (dimmed(scene, flight, wanted)) this.paintPacket(context, flight, now, 0.16);
    for (const flight of flights) if (!dimmed(scene, flight, wanted)) this.paintPacket(context, flight, now, 1);
    context.globalAlpha = 1;
  }

  private paintCells(context: CanvasRenderingContext2D, name: string, cells: Cell[], now: number): void {
    const { size, columns } = this.drawn.grid!;
    const place = this.drawn.places.get(name)!;
    const children = this.scene.children.get(name)?.length ?? 1;
    const left = place.x - (columns * (size + CELL_GAP) - CELL_GAP) / 2;
    const top = place.y - place.height / 2 + NODE_HEIGHT - 2;
    cells.forEach((cell, i) => {
      const x = left + (i % columns) * (size + CELL_GAP);
      const y = top + Math.floor(i / columns) * (size + CELL_GAP);
      this.paintCell(context, this.scene.held(cell, now), children, x, y, size);
    });
  }

  private paintCell(
    context: CanvasRenderingContext2D,
    held: Change | null,
    children: number,
    x: number,
    y: number,
    size: number,
  ): void {
    context.fillStyle = this.colour("--line");
    context.fillRect(x, y, size, size);
    if (!held) return;
    if (held.done) {
      context.fillStyle = this.colour("--good");
      context.fillRect(x, y, size, size);
    } else {
      context.fillStyle = this.colour("--series-1");
      const strip = size / children;
      for (let child = 0; child < children; child++) {
        if (Math.floor(held.seen / 2 ** child) % 2) context.fillRect(x + child * strip, y, strip - (strip > 4 ? 1 : 0), size);
      }
    }
    if (held.chunk === wantedChunk(this.scene, follow.value)) {
      context.strokeStyle = this.colour("--text");
      context.lineWidth = 2;
      context.strokeRect(x - 0.5, y - 0.5, size + 1, size + 1);
    }
  }

  private paintProgress(context: CanvasRenderingContext2D, worker: string, now: number): void {
    const { x, y, width, height } = this.drawn.places.get(worker)!;
    const [left, top, high] = [x - width / 2, y + height / 2 + 4, 6];
    context.fillStyle = this.colour("--line");
    context.fillRect(left, top, width, high);
    context.fillStyle = this.colour("--good");
    context.fillRect(left, top, width * this.scene.progress(worker, now), high);
  }

  /** The line on which the packets of a direction move: from one node's edge to the other's. */
  private lane(flight: { sender: string; receiver: string }): [number, number, number, number] {
    const from = this.drawn.places.get(flight.sender)!;
    const to = this.drawn.places.get(flight.receiver)!;
    const [across, along] = [to.x - from.x, to.y - from.y];
    const length = Math.hypot(across, along);
    const [asideX, asideY] = [(-along / length) * ASIDE, (across / length) * ASIDE];
    const begin = Math.min(0.45, from.height / 2 / Math.abs(along));
    const end = 1 - Math.min(0.45, to.height / 2 / Math.abs(along));
    return [
      from.x + begin * across + asideX,
      from.y + begin * along + asideY,
      from.x + end * across + asideX,
      from.y + end * along + asideY,
    ];
  }

  private paintQueue(context: CanvasRenderingContext2D, link: number, count: number): void {
    const [a, b] = this.scene.document.links[link >> 1]!;
    const [sender, receiver] = link % 2 ? [b, a] : [a, b];
    const [x, y, toX, toY] = this.lane({ sender, receiver });
    const length = Math.hypot(toX - x, toY - y);
    const [stepX, stepY] = [(toX - x) / length, (toY - y) / length];
    const long = Math.min(length * 0.6, 3 + count * 3);
    context.globalAlpha = 1;
    context.strokeStyle = this.colour("--warn");
    context.lineWidth = 5;
    context.beginPath();
    const aside = 7;
    context.moveTo(x - stepY * aside, y + stepX * aside);
    context.lineTo(x - stepY * aside + stepX * long, y + stepX * aside + stepY * long);
    context.stroke();
    if (count >= 5) {
      context.fillStyle = this.colour("--warn");
      context.font = "11px sans-serif";
      context.textAlign = stepY < 0 ? "left" : "right";
      const side = stepY < 0 ? 6 : -6;
      context.fillText(`${count}`, x - stepY * aside + stepX * long + side, y + stepX * aside + stepY * long);
    }
  }

  private paintPacket(context: CanvasRenderingContext2D, flight: Flight, now: number, alpha: number): void {
    const [x, y, toX, toY] = this.lane(flight);
    const part = (now - flight.begin) / Math.max(1, flight.end - flight.begin);
    const [atX, atY] = [x + part * (toX - x), y + part * (toY - y)];
    const radius = flight.kind === "acknowledgements" ? 2.5 : 5;
    context.globalAlpha = alpha;
    context.fillStyle = this.colour(COLOURS[flight.kind] ?? "--quiet");
    context.beginPath();
    // Shapes differ as well as colours do.
    if (flight.kind === "sums") context.rect(atX - radius + 0.5, atY - radius + 0.5, 2 * radius - 1, 2 * radius - 1);
    else context.arc(atX, atY, radius, 0, 2 * Math.PI);
    context.fill();
    if (flight.again === "retransmission" || flight.lost) {
      context.strokeStyle = this.colour("--bad");
      context.lineWidth = 2;
      context.beginPath();
      context.arc(atX, atY, radius + 3, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  private paintCross(context: CanvasRenderingContext2D, flight: Flight, mended: boolean): void {
    const [x, y, toX, toY] = this.lane(flight);
    const part = flight.lost === "queue drop" ? 0.08 : 0.5;
    const [atX, atY] = [x + part * (toX - x), y + part * (toY - y)];
    context.globalAlpha = mended ? 0.3 : 1;
    context.strokeStyle = this.colour("--bad");
    context.lineWidth = 2.5;
    context.beginPath();
    context.moveTo(atX - CROSS, atY - CROSS);
    context.lineTo(atX + CROSS, atY + CROSS);
    context.moveTo(atX - CROSS, atY + CROSS);
    context.lineTo(atX + CROSS, atY - CROSS);
    context.stroke();
    context.globalAlpha = 1;
  }
}

interface Properties {
  scene: Scene;
  scenes: Scene[];
  looks: Looks;
}

export function Stage({ scene, scenes, looks }: Properties) {
  const drawn = useMemo(() => layout(scene, looks), [scene, looks]);
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const painter = new Painter(canvas.current!, scene, drawn);
    const stop = effect(() => {
      painter.paint(time.value);
    });
    const stopTheme = theme.subscribe(() => {
      // The style sheet's colours change with the attribute, which another subscriber sets.
      requestAnimationFrame(() => {
        painter.forgetColours();
        painter.paint(time.value);
      });
    });
    const sizes = new ResizeObserver(() => painter.paint(time.value));
    sizes.observe(canvas.current!);
    return () => {
      stop();
      stopTheme();
      sizes.disconnect();
    };
  }, [scene, drawn]);
  const links = scene.document.links.map(([from, to]) => ({ from, to }));
  const label = `${scene.title}: a network of ${scene.document.hosts.length} hosts and ${scene.document.switches.length} switches`;
  return (
    <section class="point" aria-label={scene.title}>
      <h2 class={scene.title.length > 26 ? "long" : ""} title={scene.title}>
        {scene.title}
      </h2>
      <Status scene={scene} scenes={scenes} />
      <div class="stage">
        <NetworkDrawing
          nodes={drawn.nodes}
          links={links}
          box={drawn.box}
          label={label}
          onChoose={(id) => {
            if (scene.document.workers.includes(id)) follow.value = follow.value === id ? "" : id;
          }}
        />
        <canvas ref={canvas} aria-hidden="true" />
      </div>
    </section>
  );
}

function Status({ scene, scenes }: { scene: Scene; scenes: Scene[] }) {
  const done = useComputed(() => time.value >= scene.duration);
  const counted = useComputed(() => {
    const { sent, lost, again } = scene.counts(time.value);
    const parts = [`${sent.toLocaleString("en")} packets on links`];
    if (scene.losses.length) parts.push(`${lost} lost`, `${again} retransmitted`);
    return parts.join(" · ");
  });
  const fastest = Math.min(...scenes.map((each) => each.duration));
  const times = scene.duration / fastest;
  return (
    <p class="status">
      {done.value ? (
        <strong>
          done after {timeText(scene.duration)}
          {times > 1.005 && ` · ${times.toFixed(times < 10 ? 1 : 0)} times as long`}
        </strong>
      ) : (
        <span>
          {scene.document.operation} of {scene.document.workers.length} workers
        </span>
      )}
      <span class="counts">{counted}</span>
    </p>
  );
}
