// The packets that are sent, in their order, and the dialog that makes one.

import { useEffect, useRef, useState } from "preact/hooks";
import { NetworkDrawing, type NetworkLink, type NetworkNode } from "../shared/network";
import { cleanHex, decode, encode, type Fields } from "./bytes";
import { ask, changePackets, choosePacket, packetIndex, problem, program, ran, scenario, stepIndex, trace } from "./state";
import type { Packet, Path, Program } from "./types";

export function Packets({ onEdit }: { onEdit: (index: number | null) => void }) {
  const packets = scenario.value.packets;
  const chosen = packetIndex.value;
  const list = useRef<HTMLOListElement>(null);
  useEffect(() => {
    list.current?.querySelector("[aria-current=true]")?.scrollIntoView({ block: "nearest" });
  }, [chosen, packets]);
  const move = (by: number) => {
    const other = chosen + by;
    if (other < 0 || other >= packets.length) return;
    const changed = [...packets];
    [changed[chosen], changed[other]] = [changed[other]!, changed[chosen]!];
    changePackets(changed, other);
  };
  return (
    <section class="packets" aria-label="Packets">
      <div class="bar">
        <h2>Packets</h2>
        <button class="primary" onClick={() => onEdit(null)} title="New packet (n)">
          + Packet
        </button>
        <button onClick={() => onEdit(chosen)} disabled={!packets.length} title="Edit this packet (e)">
          Edit
        </button>
        <button
          onClick={() => changePackets([...packets.slice(0, chosen + 1), packets[chosen]!, ...packets.slice(chosen + 1)], chosen + 1)}
          disabled={!packets.length}
          title="Send it once more, after itself"
        >
          Again
        </button>
        <button class="plain" onClick={() => move(-1)} disabled={chosen === 0} aria-label="Send it earlier" title="Send it earlier">
          ↑
        </button>
        <button
          class="plain"
          onClick={() => move(1)}
          disabled={chosen >= packets.length - 1}
          aria-label="Send it later"
          title="Send it later"
        >
          ↓
        </button>
        <button
          class="plain"
          onClick={() => changePackets(packets.filter((_, index) => index !== chosen), chosen)}
          disabled={!packets.length}
          aria-label="Remove this packet"
          title="Remove this packet (Delete)"
        >
          ✕
        </button>
      </div>
      <div class="packets-body">
        <ol ref={list}>
          {packets.map((packet, index) => (
            <li key={index}>
              <button aria-current={index === chosen} onClick={() => choosePacket(index)} onDblClick={() => onEdit(index)}>
                <span class="number">{index + 1}</span>
                <span class="port">port {packet.port}</span>
                <span class="name">{packet.name || headersOf(index)}</span>
                <span class="verdict">{ran.value?.packets[index] ? short(index) : ""}</span>
              </button>
            </li>
          ))}
          {!packets.length && <li class="empty">No packets yet.</li>}
        </ol>
        <SwitchDrawing />
      </div>
    </section>
  );
}

function short(index: number): string {
  const found = ran.value!.packets[index]!;
  if (!found.outputs.length) return found.steps.some((each) => each.kind === "Enqueue") ? "queued" : "dropped";
  return `→ ${found.outputs.map(([port]) => port).join(", ")}`;
}

function extracted(index: number): string[] {
  const steps = ran.value?.packets[index]?.steps ?? [];
  const second = steps.findIndex((each, at) => at > 0 && each.kind === "Parse");
  return (second < 0 ? steps : steps.slice(0, second))
    .filter((each) => each.kind === "Extract")
    .map((each) => Object.keys(each.valid ?? {})[0] ?? "");
}

function headersOf(index: number): string {
  return extracted(index).join(" · ") || `${scenario.value.packets[index]!.hex.length / 2} bytes`;
}

/** The switch with the ports that the chosen packet uses, those that it has left by now marked. */
function SwitchDrawing() {
  const shown = trace.value;
  const packet = scenario.value.packets[packetIndex.value];
  if (!shown || !packet) return null;
  const left = new Set<number>();
  let outputs = 0;
  shown.steps.forEach((step, index) => {
    if (step.kind !== "Output") return;
    const port = shown.outputs[outputs++]?.[0];
    if (index <= stepIndex.value && port !== undefined) left.add(port);
  });
  const ports = [...new Set(shown.outputs.map(([port]) => port))].slice(0, 6);
  const nodes: NetworkNode[] = [
    { id: "in", kind: "host", x: 0, y: 0, label: `port ${packet.port}`, mark: "reached" },
    { id: "switch", kind: "switch", x: 106, y: 0, label: "switch", mark: "reached" },
    ...ports.map((port, index) => ({
      id: `out ${port}`,
      kind: "host" as const,
      x: 212,
      y: (index - (ports.length - 1) / 2) * 42,
      label: `port ${port}`,
      mark: left.has(port) ? "reached" : "",
    })),
  ];
  const links: NetworkLink[] = [
    { from: "in", to: "switch", mark: "reached" },
    ...ports.map((port) => ({ from: "switch", to: `out ${port}`, mark: left.has(port) ? "reached" : "" })),
  ];
  const dropped = !ports.length && stepIndex.value >= shown.steps.length - 1;
  const label = `The packet arrives at port ${packet.port}. ${shown.verdict}.`;
  return (
    <div class="switch-drawing">
      <NetworkDrawing nodes={nodes} links={links} label={label} places={[{ x: 212, y: 0 }]}>
        {dropped && (
          <text class="dropped" x={152} y={0}>
            ✕ dropped
          </text>
        )}
      </NetworkDrawing>
    </div>
  );
}

// The dialog

type Form = "headers" | "scapy" | "hex";

export function PacketDialog({ index, onClose }: { index: number | null; onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const known = program.value;
  const before = index === null ? null : scenario.value.packets[index]!;
  const [form, setForm] = useState<Form>(known?.paths.length ? "headers" : "hex");
  const [port, setPort] = useState(String(before?.port ?? scenario.value.packets.at(-1)?.port ?? 1));
  const [name, setName] = useState(before?.name ?? "");
  const [pathIndex, setPathIndex] = useState(known ? pathOf(known, index) : 0);
  const path = known?.paths[pathIndex];
  const [{ fields, payload }, setContent] = useState(() => content(known, path, before));
  const [hex, setHex] = useState(before?.hex ?? "");
  const [layers, setLayers] = useState("Ether()/IP(src='10.0.0.1', dst='10.0.0.2')/UDP(sport=5005, dport=53)/'hello'");
  const [wrong, setWrong] = useState("");

  const choosePath = (number: number) => {
    setPathIndex(number);
    const chosen = known?.paths[number];
    setContent({ fields: { ...fields, ...readable(known!, chosen) }, payload });
  };

  const send = async (event: Event) => {
    event.preventDefault();
    try {
      let bytes: string;
      if (form === "headers" && known && path) bytes = encode(known, path, fields, payload);
      else if (form === "scapy") bytes = (await ask<{ hex: string }>("packet", { layers })).hex;
      else bytes = cleanHex(hex);
      if (!/^\d+$/.test(port) || Number(port) > 511) throw new Error("a port is a number from 0 to 511");
      const packet: Packet = { port: Number(port), hex: bytes, name };
      const packets = [...scenario.value.packets];
      if (index === null) packets.push(packet);
      else packets[index] = packet;
      problem.value = "";
      changePackets(packets, index ?? packets.length - 1);
      dialog.current?.close();
    } catch (error) {
      setWrong((error as Error).message);
    }
  };

  const forms: [Form, string][] = [
    ["headers", "Headers of the program"],
    ["scapy", "Scapy"],
    ["hex", "Bytes"],
  ];
  return (
    <dialog ref={dialog} class="packet-dialog" onClose={onClose} aria-labelledby="packet-title">
      <form onSubmit={(event) => void send(event)}>
        <h2 id="packet-title">{index === null ? "New packet" : `Packet ${index + 1}`}</h2>
        <div class="row">
          <label>
            Port <input class="narrow" inputMode="numeric" value={port} onInput={(e) => setPort(e.currentTarget.value)} />
          </label>
          <label class="wide">
            Name <input value={name} placeholder="what it is for" onInput={(e) => setName(e.currentTarget.value)} />
          </label>
        </div>
        <div class="tabs" role="tablist" aria-label="How to write it">
          {forms.map(([id, text]) => (
            <button key={id} type="button" role="tab" aria-selected={form === id} onClick={() => setForm(id)} disabled={id === "headers" && !path}>
              {text}
            </button>
          ))}
        </div>
        <div class="content">
          {form === "headers" && known && path && (
            <>
              <label>
                Headers{" "}
                <select value={pathIndex} onChange={(e) => choosePath(Number(e.currentTarget.value))}>
                  {known.paths.map((each, number) => (
                    <option key={number} value={number}>
                      {each.headers.join(" · ") || "no header"}
                    </option>
                  ))}
                </select>
              </label>
              <div class="headers">
                {path.headers.map((header, number) => (
                  <fieldset key={number}>
                    <legend>{header}</legend>
                    {(known.headers[header] ?? []).map(([field, width]) => {
                      const id = `${header}.${field}`;
                      return (
                        <label key={id} class={id in path.values ? "forced" : ""} title={id in path.values ? "The parser chooses by this field" : undefined}>
                          <span>
                            {field} <small>{width}</small>
                          </span>
                          <input
                            value={fields[id] ?? ""}
                            placeholder="0"
                            onInput={(e) => setContent({ fields: { ...fields, [id]: e.currentTarget.value }, payload })}
                          />
                        </label>
                      );
                    })}
                  </fieldset>
                ))}
              </div>
              <label class="wide">
                Payload, in hexadecimal{" "}
                <input class="mono" value={payload} onInput={(e) => setContent({ fields, payload: e.currentTarget.value })} />
              </label>
            </>
          )}
          {form === "scapy" && (
            <label class="wide">
              Layers, divided by /
              <textarea class="mono" rows={4} value={layers} onInput={(e) => setLayers(e.currentTarget.value)} />
            </label>
          )}
          {form === "hex" && (
            <label class="wide">
              Bytes in hexadecimal, from the first header on
              <textarea class="mono" rows={6} value={hex} onInput={(e) => setHex(e.currentTarget.value)} />
            </label>
          )}
        </div>
        {wrong && (
          <p class="wrong" role="alert">
            {wrong}
          </p>
        )}
        <div class="row end">
          <button type="button" onClick={() => dialog.current?.close()}>
            Cancel
          </button>
          <button class="primary">{index === null ? "Send" : "Change"}</button>
        </div>
      </form>
    </dialog>
  );
}

/** The path that a packet of the history took, or the longest. */
function pathOf(known: Program, index: number | null): number {
  const headers = index === null ? "" : extracted(index).join(" ");
  const found = known.paths.findIndex((each) => each.headers.join(" ") === headers);
  if (found >= 0 && index !== null) return found;
  return known.paths.reduce((best, each, number) => (each.headers.length > known.paths[best]!.headers.length ? number : best), 0);
}

function readable(known: Program, path: Path | undefined): Fields {
  if (!path) return {};
  const hex = encode(known, path, path.values, "");
  const all = decode(known, path, hex)?.fields ?? {};
  return Object.fromEntries(Object.keys(path.values).map((name) => [name, all[name] ?? path.values[name]!]));
}

function content(known: Program | null, path: Path | undefined, before: Packet | null): { fields: Fields; payload: string } {
  if (!known || !path) return { fields: {}, payload: "" };
  const found = before && decode(known, path, before.hex);
  return found ?? { fields: readable(known, path), payload: "" };
}
