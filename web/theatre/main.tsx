import { useComputed, useSignal } from "@preact/signals";
import { render } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { ShortcutsDialog, useShortcuts, type Shortcut } from "../shared/keyboard";
import { ThemeButton, toggleTheme } from "../shared/theme";
import {
  bounds,
  faster,
  follow,
  goTo,
  nextLoss,
  open,
  playing,
  shown,
  slowMotion,
  speed,
  SPEEDS,
  step,
  time,
  toggle,
} from "./player";
import { Scene, timeText, until, type Document } from "./recording";
import { looksOf, Stage, WORDS } from "./stage";
import "./theatre.css";

const VERSION = 1;

const SHORTCUTS: Shortcut[] = [
  { key: " ", does: "play, or pause", run: toggle },
  { key: "ArrowRight", does: "step: to the next packet that leaves or arrives", run: () => step(1) },
  { key: "ArrowLeft", does: "step back", run: () => step(-1) },
  { key: "Home", does: "to the beginning", run: () => goTo(bounds()[0]) },
  { key: "End", does: "to the end", run: () => goTo(bounds()[1]) },
  { key: "+", does: "faster", run: () => faster(1) },
  { key: "-", does: "slower", run: () => faster(-1) },
  { key: "l", does: "to the next lost packet", run: nextLoss },
  { key: "s", does: "slow motion around losses, or not", run: () => (slowMotion.value = !slowMotion.value) },
  { key: "Escape", does: "follow nothing", run: () => (follow.value = "") },
  { key: "d", does: "light, or dark", run: toggleTheme },
];

function Theatre({ document: recording, scenes }: { document: Document; scenes: Scene[] }) {
  const help = useSignal(false);
  const shortcuts = [...SHORTCUTS, { key: "?", does: "these keys", run: () => (help.value = true) }];
  useShortcuts(shortcuts);
  const kinds = useMemo(() => {
    const used = new Set(scenes.flatMap((scene) => scene.flights.map((flight) => flight.kind)));
    return Object.keys(WORDS).filter((kind) => used.has(kind));
  }, [scenes]);
  const stages = useRef<HTMLElement>(null);
  const aspect = useSignal(1.5);
  const looks = useMemo(() => looksOf(scenes, aspect.value), [scenes, aspect.value]);
  useEffect(() => {
    const measure = () => {
      const stage = stages.current?.querySelector(".stage");
      // In steps, so that not every pixel of a window draws all networks again.
      if (stage?.clientHeight) aspect.value = Math.round((8 * stage.clientWidth) / stage.clientHeight) / 8;
    };
    measure();
    window.addEventListener("resize", measure);
    return () => window.removeEventListener("resize", measure);
  }, []);
  const losses = scenes.some((scene) => scene.losses.length > 0);
  const cells = scenes.some((scene) => scene.cells.size > 0);
  const queues = scenes.some((scene) => scene.flights.some((flight) => flight.begin > flight.joined));
  return (
    <>
      <header>
        <h1>{recording.name}</h1>
        <p class="about">{recording.description}</p>
        <button class="plain" onClick={() => (help.value = true)} title="Keys (?)" aria-label="Keys">
          ?
        </button>
        <ThemeButton />
      </header>
      <main class={`stages of-${scenes.length}`} ref={stages}>
        {scenes.map((scene) => (
          <Stage key={scene.title} scene={scene} scenes={scenes} looks={looks} />
        ))}
      </main>
      <footer>
        <Caption />
        <Controls scenes={scenes} losses={losses} />
        <div class="below">
          <ul class="legend" aria-label="Legend">
            {kinds.map((kind) => (
              <li key={kind}>
                <span class={`sign ${kind.split(" ")[0]}`} aria-hidden="true" />
                {WORDS[kind]}
              </li>
            ))}
            {losses && (
              <li>
                <span class="sign lost" aria-hidden="true">✕</span>lost
              </li>
            )}
            {losses && (
              <li>
                <span class="sign again" aria-hidden="true" />lost, or retransmitted
              </li>
            )}
            {cells && (
              <li>
                <span class="sign cell" aria-hidden="true" />a slot: some workers' values
              </li>
            )}
            {cells && (
              <li>
                <span class="sign cell done" aria-hidden="true" />a slot: the sum
              </li>
            )}
            {queues && (
              <li>
                <span class="sign queue" aria-hidden="true" />waiting to be sent
              </li>
            )}
          </ul>
        </div>
        <div class={`logs of-${scenes.length}`}>
          {scenes.map((scene) => (
            <Log key={scene.title} scene={scene} />
          ))}
        </div>
      </footer>
      {help.value && <ShortcutsDialog shortcuts={shortcuts} onClose={() => (help.value = false)} />}
    </>
  );
}

/** What is shown in slow motion. */
function Caption() {
  const text = useComputed(() => {
    const part = shown.value;
    if (!part) return "";
    const { scene, loss, recovering } = part;
    const { flight, recovery } = loss;
    const what = `${scene.contents(flight)} from ${flight.sender} to ${flight.receiver}`;
    if (recovering) {
      const waited = timeText(recovery!.begin - flight.begin);
      return `Slow motion · ${scene.title}: ${what} is retransmitted, ${waited} after the lost one`;
    }
    return `Slow motion · ${scene.title}: ${what} is lost (${flight.lost})`;
  });
  return (
    <p class={`caption ${text.value ? "" : "empty"}`} aria-live="polite">
      {text}
    </p>
  );
}

function Controls({ scenes, losses }: { scenes: Scene[]; losses: boolean }) {
  const [begin, end] = bounds();
  const part = (when: number) => `${(100 * (when - begin)) / (end - begin)}%`;
  const bar = useRef<HTMLInputElement>(null);
  const shownTime = useComputed(() => timeText(time.value));
  const most = Math.max(...scenes.map((scene) => scene.chunks.length));
  const workers = [...new Set(scenes.flatMap((scene) => scene.document.workers))];
  return (
    <div class="controls" role="group" aria-label="Playback">
      <button onClick={() => step(-1)} aria-label="Step back" title="Step back (←)">
        ◂❘
      </button>
      <button class="primary play" onClick={toggle} aria-label={playing.value ? "Pause" : "Play"} title="Space">
        {playing.value ? "❚❚" : "▶"}
      </button>
      <button onClick={() => step(1)} aria-label="Step" title="Step (→)">
        ❘▸
      </button>
      <output class="time" aria-label="Time">
        {shownTime}
      </output>
      <div class="bar">
        <input
          ref={bar}
          type="range"
          min={begin}
          max={end}
          step="any"
          value={time}
          aria-label="Time"
          aria-valuetext={shownTime}
          onInput={(event) => {
            playing.value = false;
            goTo(Number(event.currentTarget.value));
          }}
        />
        <div class="marks" aria-hidden="true">
          {begin < 0 && <span class="mark zero" ref={at(part(0))} />}
          {scenes.map((scene) => (
            <span key={scene.title} class="mark done" ref={at(part(scene.duration))} title={`${scene.title} is done`} />
          ))}
          {scenes.flatMap((scene) =>
            scene.losses.map(({ flight }, i) => (
              <span key={`${scene.title} ${i}`} class="mark lost" ref={at(part(scene.lostAt(flight)))} />
            )),
          )}
        </div>
      </div>
      <span class="end">{timeText(end)}</span>
      <label>
        Speed
        <select
          value={speed}
          onChange={(event) => (speed.value = Number(event.currentTarget.value))}
        >
          {SPEEDS.map((each) => (
            <option key={each} value={each}>
              {each < 1 ? `1/${1 / each}` : each}×
            </option>
          ))}
        </select>
      </label>
      <label>
        Follow
        <select value={follow} onChange={(event) => (follow.value = event.currentTarget.value)}>
          <option value="">everything</option>
          <optgroup label="a worker">
            {workers.map((worker) => (
              <option key={worker}>{worker}</option>
            ))}
          </optgroup>
          {most > 0 && (
            <optgroup label="a chunk">
              {Array.from({ length: most }, (_, i) => (
                <option key={i}>chunk {i + 1}</option>
              ))}
            </optgroup>
          )}
        </select>
      </label>
      {losses && (
        <label>
          <input
            type="checkbox"
            checked={slowMotion}
            onChange={(event) => (slowMotion.value = event.currentTarget.checked)}
          />
          Slow at losses
        </label>
      )}
      {losses && (
        <button onClick={nextLoss} title="l">
          Next loss
        </button>
      )}
    </div>
  );
}

/** Places a mark from the left; an attribute `style` would be forbidden where pages are served. */
function at(left: string): (element: HTMLElement | null) => void {
  return (element) => {
    if (element) element.style.left = left;
  };
}

const LINES = 4;

/** The last things that have happened. */
function Log({ scene }: { scene: Scene }) {
  const times = useMemo(() => scene.happenings.map((each) => each.time), [scene]);
  const count = useComputed(() => until(times, time.value));
  const lines = scene.happenings.slice(Math.max(0, count.value - LINES), count.value);
  return (
    <ol class="log" aria-label={`What has happened: ${scene.title}`} aria-live={playing.value ? "off" : "polite"}>
      {lines.map((line, i) => (
        <li key={count.value - lines.length + i} class={line.kind}>
          <time>{timeText(line.time)}</time> {line.text}
        </li>
      ))}
    </ol>
  );
}

function show(text: string): void {
  const page = document.getElementById("page")!;
  try {
    const recording = JSON.parse(text) as Document;
    if (recording.format !== "fanin-recording" || recording.version !== VERSION) {
      throw new Error(`this page plays recordings of version ${VERSION}`);
    }
    const scenes = recording.points.map((point) => new Scene(point));
    open(scenes);
    render(<Theatre document={recording} scenes={scenes} />, page);
  } catch (error) {
    page.textContent = `The recording cannot be played: ${error instanceof Error ? error.message : error}`;
    return;
  }
  playing.value = !window.matchMedia("(prefers-reduced-motion: reduce)").matches;
}

show(document.getElementById("recording")!.textContent ?? "");
