// @NAME@: a step of monolect as WebAssembly, in node.
//
//   import { load } from "./@NAME@.mjs";
//   const { step, init } = load();
//   const { @RESULTS@ } = step({ @ARGUMENTS@ });
//
// Arrays are typed arrays, row by row, and stay the caller's. Results are copies. `init` starts over.
import fs from "node:fs";

const parameters = [
@PARAMETERS@
];
const errors = {
@ERRORS@
};

const segments = [@SEGMENTS@]; // [offset, bytes] of weights and states, which follow a head of 64 bytes in the file
const align = (n) => Math.ceil(n / 64) * 64;

function read(path, memory, base) {
  const file = fs.openSync(path), head = new BigUint64Array(8);
  let from = fs.readSync(file, head, { position: 0 });
  if (head[1] !== @IDENTITY@n) throw new Error("@NAME@.weights is damaged, or of another model");
  for (const [start, bytes] of segments)
    for (let done = 0, n; done < bytes; done += n, from += n) {
      const part = new Uint8Array(memory.buffer, base + start + done, Math.min(bytes - done, 1 << 30));
      if ((n = fs.readSync(file, part, { position: from })) === 0) throw new Error("@NAME@.weights ends too early");
    }
  fs.closeSync(file);
}

export function load(folder = new URL(".", import.meta.url)) {
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(fs.readFileSync(new URL("@NAME@.wasm", folder))));
  const memory = exports.memory, base = align(exports.__heap_base.value >>> 0); // address of the step's own memory
  let free = base + align(@BYTES@);
  const at = parameters.map((p) => (free += align(p.bytes)) - align(p.bytes));
  memory.grow(Math.max(0, Math.ceil((free - memory.buffer.byteLength) / 65536)));

  function init() {
    if (segments.length) read(new URL("@NAME@.weights", folder), memory, base);
    exports.init();
  }
  function step(given) {
    const sizes = Object.fromEntries(parameters.filter((p) => p.kind === "size").map((p) => [p.name, Number(given[p.name])]));
    const views = parameters.map((p, k) => p.array && new p.array(memory.buffer, at[k], p.length(sizes)));
    const select = (...kinds) => parameters.map((p, k) => [p, given[p.name], views[k]]).filter(([p]) => kinds.includes(p.kind));
    for (const [p, x, v] of select("input", "update")) {
      if (!(x instanceof p.array) || x.length !== v.length) throw new Error(`${p.name}: expected a ${p.array.name} of ${v.length}`);
      v.set(x);
    }
    const code = exports.step(...parameters.map((p, k) => (p.kind === "size" ? sizes[p.name] : at[k])));
    if (code) throw new Error(errors[code] ?? `code ${code}`);
    for (const [, x, v] of select("update")) x.set(v);
    return Object.fromEntries(select("output").map(([p, , v]) => [p.name, v.slice()]));
  }
  init();
  return { step, init };
}
