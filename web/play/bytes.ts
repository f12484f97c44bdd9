// Packets as bytes and as fields of the program's headers.

import type { Path, Program } from "./types";

export type Fields = Record<string, string>;

/** The number that a text stands for: 17, 0x11, 10.1.0.1, 02:00:00:00:00:01. */
export function parseNumber(text: string): bigint {
  const plain = text.trim();
  if (plain === "") return 0n;
  if (/^\d+(\.\d+){3}$/.test(plain)) {
    const parts = plain.split(".").map(BigInt);
    if (parts.some((part) => part > 255n)) throw new Error(`${plain} is not an IPv4 address`);
    return parts.reduce((sum, part) => (sum << 8n) | part, 0n);
  }
  if (/^[0-9a-f]{2}(:[0-9a-f]{2})+$/i.test(plain)) return BigInt(`0x${plain.replaceAll(":", "")}`);
  if (!/^(0x[0-9a-f_]+|0b[01_]+|\d+)$/i.test(plain)) throw new Error(`${plain} is neither a number nor an address`);
  return BigInt(plain.replaceAll("_", ""));
}

export function showNumber(value: bigint, width: number, field: string): string {
  const digits = value.toString(16).padStart(Math.ceil(width / 4), "0");
  if (width === 48) return digits.match(/../g)!.join(":");
  if (width === 32 && /^(ip|arp)/i.test(field)) return digits.match(/../g)!.map((each) => parseInt(each, 16)).join(".");
  return width > 32 || /type/i.test(field) ? `0x${digits}` : value.toString();
}

/** The bytes of a packet with the headers of a path. */
export function encode(program: Program, path: Path, fields: Fields, payload: string): string {
  let bits = "";
  for (const header of path.headers) {
    for (const [name, width] of program.headers[header] ?? []) {
      const value = parseNumber(fields[`${header}.${name}`] ?? "");
      if (value >> BigInt(width)) throw new Error(`${header}.${name}: ${fields[`${header}.${name}`]} does not fit ${width} bits`);
      bits += value.toString(2).padStart(width, "0").slice(0, width);
    }
  }
  let hex = "";
  for (let at = 0; at < bits.length; at += 8) hex += parseInt(bits.slice(at, at + 8).padEnd(8, "0"), 2).toString(16).padStart(2, "0");
  return hex + cleanHex(payload);
}

/** The fields of a packet, if it is long enough for the headers of a path, and what follows them. */
export function decode(program: Program, path: Path, hex: string): { fields: Fields; payload: string } | null {
  const bits = [...hex].map((digit) => parseInt(digit, 16).toString(2).padStart(4, "0")).join("");
  const fields: Fields = {};
  let at = 0;
  for (const header of path.headers) {
    for (const [name, width] of program.headers[header] ?? []) {
      if (at + width > bits.length) return null;
      const value = width ? BigInt(`0b${bits.slice(at, at + width)}`) : 0n;
      fields[`${header}.${name}`] = showNumber(value, width, header + name);
      at += width;
    }
  }
  return { fields, payload: hex.slice(Math.ceil(at / 4)) };
}

export function cleanHex(text: string): string {
  const digits = text.replace(/0x|[\s:]/gi, "").toLowerCase();
  if (!/^([0-9a-f]{2})*$/.test(digits)) throw new Error("write two hexadecimal digits for each byte");
  return digits;
}
