// One launch of one kernel of a WebAssembly module, in node: `node launch.mjs kernels.wasm NAME`. See launch.c for what is
// read and written. Pointers have four bytes there, but a slot has eight.
import fs from "node:fs";

const input = fs.readFileSync(0);
const { exports } = new WebAssembly.Instance(new WebAssembly.Module(fs.readFileSync(process.argv[2])));
let at = 0;
const word = () => input.readBigInt64LE((at += 8) - 8);
const up = (n) => Math.ceil(n / 64) * 64;

const [, threads, local, n] = [word(), word(), Number(word()), Number(word())];
const slots = up(exports.__heap_base.value);
let free = up(slots + 8 * (1 + n));
const values = [BigInt(free)];
free += up(local);
const buffers = [];
for (let i = 0; i < n; i++) {
  const bytes = Number(word());
  values.push(bytes < 0 ? word() : BigInt(free));
  if (bytes > 0) buffers.push([free, bytes]);
  free += up(Math.max(bytes, 0));
}
const missing = free - exports.memory.buffer.byteLength;
if (missing > 0) exports.memory.grow(Math.ceil(missing / 65536));
const memory = new Uint8Array(exports.memory.buffer);
new BigInt64Array(exports.memory.buffer, slots, 1 + n).set(values);
for (const [place, bytes] of buffers) memory.set(input.subarray(at, (at += bytes)), place);
for (let t = 0n; t < threads; t++) exports[process.argv[3]](slots + 8, t);
for (const [place, bytes] of buffers) fs.writeSync(1, memory, place, bytes);
