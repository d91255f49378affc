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

export function load(folder = new URL(".", import.meta.url)) {
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(fs.readFileSync(new URL("@NAME@.wasm", folder))));
  const base = Math.ceil((exports.__heap_base.value >>> 0) / 64) * 64; // where the step's own memory begins
  let free = base;
  const alloc = (bytes) => {
    const at = Math.ceil(free / 64) * 64;
    free = at + bytes;
    const missing = free - exports.memory.buffer.byteLength;
    if (missing > 0) exports.memory.grow(Math.ceil(missing / 65536));
    return at;
  };
  alloc(@BYTES@);
  const at = parameters.map((p) => (p.kind === "size" ? 0 : alloc(p.most * p.array.BYTES_PER_ELEMENT)));
  const view = (p, k, n) => new p.array(exports.memory.buffer, at[k], n);

  function init() {
    const segments = [@SEGMENTS@]; // of weights and states, which follow a head of 64 bytes in the file
    const file = segments.length ? fs.openSync(new URL("@NAME@.weights", folder)) : -1;
    const head = new BigUint64Array(8);
    if (file >= 0) fs.readSync(file, head, 0, 64, 0);
    if (file >= 0 && head[1] !== @IDENTITY@n) throw new Error("@NAME@.weights is damaged, or of another model");
    let from = 64;
    for (const [start, bytes] of segments)
      for (let done = 0, n; done < bytes; done += n, from += n) {
        const part = new Uint8Array(exports.memory.buffer, base + start + done, Math.min(bytes - done, 1 << 30));
        n = fs.readSync(file, part, 0, part.length, from);
        if (n === 0) throw new Error("@NAME@.weights ends too early");
      }
    if (file >= 0) fs.closeSync(file);
    exports.init();
  }

  function step(given) {
    const sizes = Object.fromEntries(parameters.filter((p) => p.kind === "size").map((p) => [p.name, Number(given[p.name])]));
    parameters.forEach((p, k) => {
      if (p.kind !== "input" && p.kind !== "update") return;
      const x = given[p.name], n = p.length(sizes);
      if (!(x instanceof p.array) || x.length !== n) throw new Error(`${p.name}: expected a ${p.array.name} of ${n}`);
      view(p, k, n).set(x);
    });
    const code = exports.step(...parameters.map((p, k) => (p.kind === "size" ? sizes[p.name] : at[k])));
    if (code) throw new Error(errors[code] ?? `code ${code}`);
    const out = {};
    parameters.forEach((p, k) => {
      if (p.kind === "update") given[p.name].set(view(p, k, p.length(sizes)));
      if (p.kind === "output") out[p.name] = view(p, k, p.length(sizes)).slice();
    });
    return out;
  }

  init();
  return { step, init };
}
