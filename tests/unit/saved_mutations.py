"""Saved steps changed at random, loaded and called: each is refused by an error of ours, or runs.

`test_stored.py` starts it as a process of its own, as a changed step that does harm would end the process. Whoever
changes a file on purpose computes its checksum, too, so that is what happens here.

    python tests/unit/saved_mutations.py FOLDER SEED COUNT
"""

import collections
import json
import random
import re
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from monolect import MonolectError, Tensor, Variable, jit
from monolect.capture.files import saved
from monolect.ir import text as ir_text
from monolect.ir.ops import ROLES
from monolect.ir.uop import UOp, node
from monolect.optim import SGD

NUMBERS = (-(1 << 63), -1, 0, 1, 2, 3, 5, 7, 63, 64, 65, 1000, 1 << 31, 1 << 40, (1 << 63) - 1, 1 << 64)
WORDS = (
    "ADD MUL MAX IDIV MOD WHERE LOAD STORE ATOMICADD INDEX CUSTOM CAST EXPAND RESHAPE SHRINK BUFFER PARAM SINK"
    " AFTER BITCAST CALL FUNCTION LINEAR TUPLE"
).split()
WORDS += [
    "f32",
    "f64",
    "i64",
    "u8",
    "idx",
    "b1",
    '"LOCAL"',
    '"REG"',
    '"GLOBAL"',
    '"THREAD"',
    '"REDUCE"',
    "None",
    "invalid",
]
WORDS += [f'"{role}"' for role in ROLES]
FIELDS = ("moves=({0},)", "moves=({0}, {1})", "reuse=(({0}, {1}),)", "shared=({0},)")  # of a StepInfo, with slots
GUARD = 64  # elements around each argument that no step may change
N_SAVED = Variable("n_saved", 1, 4)


def arguments() -> list[list[Tensor]]:
    """Of each step of `steps`, with values that are no places."""
    x = np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)
    i = np.array([0, -1, 3, 1 << 62, -(1 << 63), 2], np.int64)
    row = x[0].copy()
    return [[Tensor(x)], [Tensor(x)], [Tensor(x), Tensor(i)], [Tensor(row)], [Tensor(row)], [Tensor(x)], [Tensor(x)]]


def steps() -> list[Any]:
    """Return a step of each kind that a file can hold: it multiplies by a constant, updates a tensor in place, gathers,
    slices to a symbolic size, exchanges states, updates a weight by its gradient, or reads a gradient.
    """
    w = Tensor(np.arange(16, dtype=np.float32).reshape(4, 4)).realize()
    total = Tensor(np.zeros(4, np.float32)).realize()

    first, second, third, fourth = (Tensor(np.full(4, k, np.float32)).realize() for k in range(4))

    def update(x: Tensor) -> Tensor:
        total.assign(total + x.softmax(1).sum(0))
        return total[1:3] * 2

    def move(x: Tensor) -> tuple[Tensor, Tensor]:
        old = Tensor(first), Tensor(second)
        first.assign(first + x)
        second.assign(second * first)
        third.assign(third + x)
        fourth.assign(fourth - x)
        return old

    weight, other = (Tensor(np.full((4, 2), k, np.float32), requires_grad=True).realize() for k in (1, 2))
    descent = SGD([weight], 0.1)

    def learn(x: Tensor) -> Tensor:
        descent.zero_grad()
        loss = (x @ weight).tanh().sum()
        loss.backward()
        descent.step()
        return loss

    def differentiate(x: Tensor) -> Tensor:
        other.grad = None
        loss = (x @ other).tanh().sum()
        loss.backward()
        return other.grad * loss

    return [
        jit(lambda x: {"out": (x @ w).relu() @ w, "same": x.reshape(4, 2)}),
        jit(update),
        jit(lambda x, i: x.reshape(8)[i]),
        jit(lambda x: (x[:N_SAVED] * 2).contiguous()),
        jit(move),
        jit(learn),
        jit(differentiate),
    ]


def write(path: Path, head: bytes, text: bytes, arrays: bytes) -> None:
    """A file of those parts, with the checksum of a careful forger."""
    body = [head, text, arrays]
    path.write_bytes(
        saved.HEADER.pack(saved.MAGIC, saved.FORMAT, *map(len, body), saved.checksum_of(body)) + b"".join(body)
    )


def read(path: Path) -> tuple[bytes, bytes, bytes]:
    data = path.read_bytes()
    _, _, n_json, n_text, _, _ = saved.HEADER.unpack_from(data)
    body = data[saved.HEADER.size :]
    return body[:n_json], body[n_json : n_json + n_text], body[n_json + n_text :]


def changed_json(rng: random.Random, head: bytes) -> bytes:
    """One number, text or list somewhere in it is another one."""
    data = json.loads(head)
    places: list[tuple[Any, Any]] = []
    todo: list[Any] = [data]
    for x in todo:
        rows = x.items() if isinstance(x, dict) else enumerate(x)
        for k, v in rows:
            places.append((x, k))
            if isinstance(v, list | dict):
                todo.append(v)
    x, k = rng.choice(places)
    way = rng.randrange(4)
    if way == 0:
        x[k] = rng.choice([*NUMBERS, None, True, "x", [], [0], {}, 1.5, {"tensor": 0}])
    elif way == 1 and isinstance(x[k], int):
        x[k] += rng.choice((-1, 1))
    elif way == 2:
        other, j = rng.choice(places)
        x[k] = other[j] if not isinstance(other[j], list | dict) else 0
    elif isinstance(x, list):
        rng.choice((lambda: x.pop(k), lambda: x.insert(k, x[k]), lambda: rng.shuffle(x)))()
    else:
        del x[k]
    return json.dumps(data).encode()


def changed_text(rng: random.Random, text: bytes) -> bytes:
    """One or two numbers, names, words or lines are others."""
    out = text.decode()
    for _ in range(rng.choice((1, 1, 1, 2))):
        tokens = [*re.finditer(r"%\d+|-?\d+|[A-Za-z_][A-Za-z_0-9]*|\"\w*\"", out)]
        lines = out.split("\n")
        way = rng.randrange(11)
        if way == 10:
            field = rng.choice(FIELDS).format(rng.choice(NUMBERS[1:7]), rng.choice(NUMBERS[1:7]))
            out = out.replace("is_replayed", f"{field}, is_replayed")
        elif way < 8:
            way %= 4
            t = rng.choice(tokens)
            if way == 0 and t[0].lstrip("-").isdigit():
                new = str(rng.choice([*NUMBERS, int(t[0]) + 1, int(t[0]) - 1, int(t[0]) * 2]))
            elif way == 1:
                new = rng.choice(WORDS)
            else:
                alike = [o[0] for o in tokens if o[0][0] == t[0][0] or (o[0][0].isdigit() and t[0][0].isdigit())]
                new = rng.choice(alike)
            out = out[: t.start()] + new + out[t.end() :]
        else:
            k = rng.randrange(len(lines))
            lines[k : k + 1] = rng.choice(([], [rng.choice(lines), lines[k]]))
            out = "\n".join(lines)
    return with_columns(out).encode() if rng.random() < 0.9 else out.encode()


def with_columns(text: str) -> str:
    """With the dtypes and shapes that a reader compares: what each line says of its node follows from the rest."""
    nodes: dict[str, UOp] = {}
    names: dict[UOp, str] = {}
    out = []
    for line in text.split("\n"):
        try:
            name, op, _, sources, rest = ir_text._LINE.fullmatch(line).groups()
            u = node(op, tuple([nodes[s[1:]] for s in sources.split()]), *ir_text._Arguments(rest, 1).read())
            nodes[name] = u
            line = f"%{name} = {op} {ir_text._column(u, names, {})}{sources} {rest}".rstrip()
            names.setdefault(u, "%" + name)
        except Exception:  # the reader will find it, too
            pass
        out.append(line)
    return "\n".join(out)


def guarded(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values inside of a larger array, whose rest is to stay as it is."""
    n = GUARD * 8 // values.itemsize
    whole = np.full(values.size + 2 * n, 77, values.dtype)
    inner = whole[n : n + values.size].reshape(values.shape)
    inner[...] = values
    return whole, inner


def run(path: Path, args: list[Tensor]) -> None:
    wholes, given = zip(*(guarded(t.numpy()) for t in args), strict=True)
    before = [w.copy() for w in wholes]
    try:
        step = jit.load(path)
        for _ in range(2):
            with N_SAVED.bind(3):
                out = step(*map(Tensor, given))
            for t in out.values() if isinstance(out, dict) else out if isinstance(out, list | tuple) else [out]:
                if isinstance(t, Tensor):
                    t.numpy()
    finally:
        for w, b in zip(wholes, before, strict=True):
            assert w.tobytes() == b.tobytes(), "a step changed memory of its caller"


def saved_steps(folder: Path) -> list[tuple[Path, list[Tensor]]]:
    """The files of `steps`, each with the arguments of a call."""
    out = []
    for k, (step, args) in enumerate(zip(steps(), arguments(), strict=True)):
        with N_SAVED.bind(2):
            step(*args), step(*args)
        out.append((folder / f"{k}.step", args))
        step.save(out[-1][0])
    return out


def main(folder: Path, seed: int, n: int) -> None:
    rng = random.Random(seed)
    found = saved_steps(folder)
    for path, args in found:
        run(path, args)
    counts: collections.Counter[str] = collections.Counter()
    for m in range(n):
        original, args = rng.choice(found)
        head, text, arrays = read(original)
        way = rng.choice(("json", "text", "text", "text", "bytes"))
        if way == "json":
            head = changed_json(rng, head)
        elif way == "text":
            text = changed_text(rng, text)
        else:
            part = bytearray(rng.choice((head, text)))
            at = rng.randrange(len(part))
            part[at] ^= 1 << rng.randrange(8)
            head, text = (bytes(part), text) if part[:1] == b"{" else (head, bytes(part))
        path = folder / "changed.step"
        write(path, head, text, arrays)
        (folder / "last").write_text(f"{seed} {m}")
        signal.alarm(60)  # s; a search for plans that a changed setting asks for takes up to 16 on a slow processor
        try:
            run(path, args)
            counts["ran"] += 1
        except MonolectError as e:
            counts[type(e).__name__] += 1
        signal.alarm(0)
    print(json.dumps(counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
