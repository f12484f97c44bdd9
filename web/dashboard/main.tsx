import { useComputed, useSignal } from "@preact/signals";
import { render } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { ShortcutsDialog, useShortcuts, type Shortcut } from "../shared/keyboard";
import { NetworkDrawing, NODE_HEIGHT, type NetworkNode } from "../shared/network";
import { ThemeButton, toggleTheme } from "../shared/theme";
import { placed } from "../shared/tiers";
import { connect, connected, load, network, rateText, state, type JobState, type Network } from "./live";
import "./dashboard.css";

const ASIDE = 6; // from the middle of a link to the load of each direction
const BUSY = 0.8; // of a link's rate
const UNLIMITED = 1e9; // bits/s: what a link without a rate is drawn against
const SWITCH_HEIGHT = 52;
const [LABEL_WIDTH, LABEL_HEIGHT] = [66, 14]; // of a rate

function Dashboard() {
  const help = useSignal(false);
  const shortcuts: Shortcut[] = [
    { key: "d", does: "light, or dark", run: toggleTheme },
    { key: "?", does: "these keys", run: () => (help.value = true) },
  ];
  useShortcuts(shortcuts);
  const found = network.value;
  if (!found) return <p class="waiting">{connected.value ? "Looking at the network…" : "There is no answer."}</p>;
  return (
    <>
      <header>
        <h1>{found.name}</h1>
        <p class={`line ${connected.value ? "good" : "bad"}`} role="status">
          {connected.value ? "live" : "the network does not answer: it is down, or its command has ended"}
        </p>
        <button class="plain" onClick={() => (help.value = true)} aria-label="Keys" title="Keys (?)">
          ?
        </button>
        <ThemeButton />
      </header>
      <Alarms />
      <main>
        <Drawing network={found} />
        <aside>
          <Jobs />
          <Switches network={found} />
        </aside>
      </main>
      {help.value && <ShortcutsDialog shortcuts={shortcuts} onClose={() => (help.value = false)} />}
    </>
  );
}

function Alarms() {
  const alarms = state.value?.alarms ?? [];
  return (
    <ul class={`alarms ${alarms.length ? "" : "none"}`} role="alert" aria-label="Alarms">
      {alarms.length ? alarms.map((alarm) => <li key={alarm}>{alarm}</li>) : <li>no alarms</li>}
    </ul>
  );
}

function Drawing({ network: found }: { network: Network }) {
  const place = useRef<HTMLElement>(null);
  const aspect = useSignal(1.6);
  useEffect(() => {
    const measure = () => {
      const { clientWidth, clientHeight } = place.current!;
      if (clientHeight) aspect.value = Math.round((8 * clientWidth) / clientHeight) / 8;
    };
    measure();
    window.addEventListener("resize", measure);
    return () => window.removeEventListener("resize", measure);
  }, []);
  const { nodes, box } = useMemo(() => {
    const drawn = placed(found, aspect.value, 104, SWITCH_HEIGHT);
    return { ...drawn, nodes: drawn.nodes.map((node) => ({ ...node, mark: "" })) };
  }, [found, aspect.value]);
  const now = state.value;
  const jobs = now?.jobs ?? [];
  const late = new Set(jobs.flatMap((job) => job.workers.filter((worker) => worker.late).map((worker) => worker.host)));
  const working = new Set(jobs.flatMap((job) => job.workers.map((worker) => worker.host)));
  const marked = nodes.map((node) => {
    const failing = node.kind === "switch" && Boolean(now?.switches[node.id]?.error);
    const mark = failing || late.has(node.id) ? "bad" : node.kind === "host" && working.has(node.id) ? "working" : "";
    return { ...node, mark };
  });
  const links = found.links.map(([from, to], number) => ({
    from,
    to,
    mark: now?.links[2 * number]?.up === false || now?.links[2 * number + 1]?.up === false ? "down" : "",
  }));
  const places = new Map(nodes.map((node) => [node.id, node]));
  const directions: Ends[] = found.links.flatMap(([a, b]) => [
    { from: places.get(a)!, to: places.get(b)! },
    { from: places.get(b)!, to: places.get(a)! },
  ]);
  const labelled = roomFor(directions);
  return (
    <figure ref={place}>
      <NetworkDrawing nodes={marked} links={links} box={box} label={`Network ${found.name}: load of its links`}>
        {directions.map((ends, direction) => (
          <Load key={direction} direction={direction} {...ends} labelled={labelled[direction]!} />
        ))}
        {nodes
          .filter((node) => node.kind === "switch")
          .map((node) => {
            const of = now?.switches[node.id];
            return (
              <text key={node.id} class="slots" x={node.x} y={node.y + NODE_HEIGHT / 2 - 2}>
                {of ? (of.error ? "no answer" : `${of.slots} slots`) : ""}
              </text>
            );
          })}
        {jobs.flatMap((job) =>
          job.workers.map((worker) => {
            const node = places.get(worker.host);
            if (!node || worker.part === null) return null;
            const [width, top] = [node.width!, node.y + NODE_HEIGHT / 2 + 5];
            return (
              <g key={`${job.name} ${worker.host}`} class="progress">
                <rect class="all" x={node.x - width / 2} y={top} width={width} height={6} />
                <rect class="part" x={node.x - width / 2} y={top} width={width * worker.part} height={6} />
              </g>
            );
          }),
        )}
      </NetworkDrawing>
      <figcaption>
        <span>
          <i class="swatch idle" /> idle
        </span>
        <span>
          <i class="swatch some" /> load
        </span>
        <span>
          <i class="swatch busy" /> above {100 * BUSY} % of the rate
        </span>
        <span>
          <i class="swatch queue" /> queue
        </span>
        <span>
          <i class="swatch bad" /> losing packets, down, or waited for
        </span>
      </figcaption>
    </figure>
  );
}

/** Where the load of one direction is drawn, next to its link: its ends at a part of the way, and its label. */
function lane(from: NetworkNode, to: NetworkNode) {
  const [across, along] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(across, along);
  const [asideX, asideY] = [(-along / length) * ASIDE, (across / length) * ASIDE];
  const at = (part: number): [number, number] => [from.x + part * across + asideX, from.y + part * along + asideY];
  // The labels of neighbouring links, one for each direction, are at different heights.
  const [x, y] = at(from.y < to.y ? 0.55 : 0.3);
  const label: [number, number] = [x + Math.sign(asideX) * 7, y];
  return { at, asideX, asideY, label, side: asideX >= 0 ? "right" : "left" };
}

interface Ends {
  from: NetworkNode;
  to: NetworkNode;
}

/** Returns which directions have room for their rates: all links of hosts or none, and of the others as many as fit. */
function roomFor(directions: Ends[]): boolean[] {
  const places = directions.map(({ from, to }) => {
    const { label, side } = lane(from, to);
    return [label[0] - (side === "left" ? LABEL_WIDTH : 0), label[1]] as const;
  });
  const meet = (one: number, other: number) =>
    Math.abs(places[one]![0] - places[other]![0]) < LABEL_WIDTH &&
    Math.abs(places[one]![1] - places[other]![1]) < LABEL_HEIGHT;
  const numbers = [...directions.keys()];
  const ofHosts = numbers.filter((i) => directions[i]!.from.kind === "host" || directions[i]!.to.kind === "host");
  const crowded = ofHosts.some((one) => ofHosts.some((other) => one < other && meet(one, other)));
  const shown = new Set(crowded ? [] : ofHosts);
  for (const i of numbers) {
    if (!ofHosts.includes(i) && ![...shown].some((other) => meet(i, other))) shown.add(i);
  }
  return numbers.map((i) => shown.has(i));
}

interface LoadProperties extends Ends {
  direction: number;
  /** Whether there is room for the rate; without, only pointing at the line shows it. */
  labelled: boolean;
}

/** The load of one direction: a line next to the link, as thick as it is busy. Only this changes ten times a second. */
function Load({ direction, from, to, labelled }: LoadProperties) {
  const limit = useComputed(() => state.value?.links[direction]?.rate ?? UNLIMITED);
  const part = useComputed(() => Math.min(1, (load.value[direction] ?? 0) / limit.value));
  const width = useComputed(() => (part.value > 0.0005 ? 1 + 6 * part.value : 0));
  const mark = useComputed(() => {
    if (state.value?.links[direction]?.losing) return "load bad";
    return part.value > BUSY ? "load busy" : "load";
  });
  const { at, asideX, asideY, label, side } = lane(from, to);
  const [begin, end] = [at(0.24), at(0.76)];
  const link = state.value?.links[direction];
  const text = useComputed(() => {
    const bits = load.value[direction] ?? null;
    return part.value > 0.02 ? rateText(bits) : "";
  });
  const queue = link?.queue ? Math.min(1, link.queue / 1e5) : 0;
  const queueEnd = at(0.24 + 0.3 * queue);
  const out = 2.1;
  return (
    <g>
      <title>
        {from.id} → {to.id}: {text}
      </title>
      <line class={mark} x1={begin[0]} y1={begin[1]} x2={end[0]} y2={end[1]} stroke-width={width} />
      {queue > 0 && (
        <line
          class="queue"
          x1={begin[0] + asideX * out}
          y1={begin[1] + asideY * out}
          x2={queueEnd[0] + asideX * out}
          y2={queueEnd[1] + asideY * out}
        />
      )}
      {labelled && (
        <text class={`rate ${side}`} x={label[0]} y={label[1]}>
          {text}
        </text>
      )}
    </g>
  );
}

function Jobs() {
  const now = state.value;
  if (!now) return null;
  return (
    <section aria-labelledby="jobs">
      <h2 id="jobs">Jobs</h2>
      {!now.jobs.length && !now.forming.length && <p class="quiet">No job is running.</p>}
      {now.forming.map((job) => (
        <p key={job.name}>
          <strong>{job.name}</strong> forms: {job.joined} joined, {job.missing.join(" ")} missing
        </p>
      ))}
      {now.jobs.map((job) => (
        <Job key={`${job.name} ${job.workers[0]?.host}`} job={job} />
      ))}
    </section>
  );
}

function Job({ job }: { job: JobState }) {
  return (
    <table>
      <caption>
        <strong>{job.name}</strong> {job.state}
        {job.window ? `, ${job.window} slots` : ", no slots"}, {Math.round(job.seconds)} s {job.why}
      </caption>
      <thead>
        <tr>
          <th scope="col">worker</th>
          <th scope="col">all-reduces</th>
          <th scope="col">receives</th>
          <th scope="col">RTT</th>
          <th scope="col">retransmitted</th>
        </tr>
      </thead>
      <tbody>
        {job.workers.map((worker) => (
          <tr key={worker.host} class={worker.late ? "bad" : ""}>
            <th scope="row">
              {worker.host}
              {worker.left ? " (left)" : worker.late ? " (late)" : ""}
            </th>
            <td>
              {worker.done?.toLocaleString("en") ?? "–"}
              {worker.part !== null && ` + ${Math.round(100 * worker.part)} %`}
            </td>
            <td>{rateText(worker.bits)}</td>
            <td>{worker.rtt === null ? "–" : `${(1e3 * worker.rtt).toPrecision(2)} ms`}</td>
            <td>{worker.retransmissions?.toLocaleString("en") ?? "–"}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Switches({ network: found }: { network: Network }) {
  const now = state.value;
  if (!now) return null;
  return (
    <section aria-labelledby="switches">
      <h2 id="switches">Switches</h2>
      <table>
        <thead>
          <tr>
            <th scope="col">switch</th>
            <th scope="col">packets/s</th>
            <th scope="col">slots of {found.slots.toLocaleString("en")}</th>
            <th scope="col" class="text">drops by reason</th>
          </tr>
        </thead>
        <tbody>
          {Object.entries(now.switches).map(([name, of]) => (
            <tr key={name} class={of.error ? "bad" : ""}>
              <th scope="row">{name}</th>
              <td>{of.packets === null ? "–" : Math.round(of.packets).toLocaleString("en")}</td>
              <td>{of.slots}</td>
              <td class="text">
                {of.error ||
                  Object.entries(of.drops)
                    .map(([reason, [count, rate]]) => {
                      const growing = rate >= 0.5 ? ` (${Math.round(rate).toLocaleString("en")}/s)` : "";
                      return `${reason} ${count.toLocaleString("en")}${growing}`;
                    })
                    .join(", ") ||
                  "none"}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

connect();
render(<Dashboard />, document.getElementById("page")!);
