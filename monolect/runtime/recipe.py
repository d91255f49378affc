"""What a capture is, as plain data: the runs of a step joined into one list of launches over numbered buffers.

Each buffer the step touched is an argument (given anew at each call), state (a tensor the step reads and assigns:
updated in place where that is safe), an output (fresh memory at each call), a constant, or private. Private ones share
one arena, by their lifetimes over the whole capture. What depends on constants alone is a prologue, and so is what is
stored around padded values, whose memory nothing else takes.

What it is not: it holds no tensors, memory or bound addresses (`runtime/jit.py`), so it can be written to a file.
Invariant: its BUFFERs are marks, which have no storage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from monolect.backend.base import Ordered, Phase, Threaded
from monolect.backend.registry import Device
from monolect.base.errors import JitError
from monolect.base.settings import settings
from monolect.ir.ops import BufferArg, KernelInfo
from monolect.ir.uop import UOp, node, substitute
from monolect.runtime.buffer import base_of
from monolect.runtime.dependencies import Use, all_before, dependencies, written
from monolect.runtime.execute import Run
from monolect.runtime.hoist import hoist
from monolect.runtime.in_place import is_copy, may_overwrite, uses_of
from monolect.runtime.parts import from_parts
from monolect.runtime.phases import phases, times
from monolect.runtime.prologue import WRITABLE, Step, results, split, writes_seen
from monolect.schedule.memory import Life, MemoryPlan, place, place_apart


class Value(NamedTuple):
    """What a node of the capture is at a replay: `node` with the mark `base` replaced by item `at` of a list."""

    source: int  # MADE, BROUGHT, READ or KEPT
    at: int
    node: UOp
    base: UOp


MADE, BROUGHT, READ, KEPT = range(4)  # fresh memory; arguments and states; tensors read from outside; constants


class Made(NamedTuple):
    """Fresh memory of each call: a mark of its kind, its bytes, and its shape where that is symbolic."""

    mark: UOp
    n_bytes: int
    shape: tuple | None


class Draft(NamedTuple):
    """A step over numbered buffers, before anything of it is planned: what a file holds (`runtime/stored.py`).

    Arguments, old versions of moving states, sizes and what is made come with a call and are numbered first, in this
    order; the others are bound once.
    """

    device: str | None
    n_args: int
    variables: tuple[UOp, ...]
    made: tuple[Made, ...]
    outputs: tuple[Value, ...]
    moves: tuple[tuple[int, Value], ...]  # of each state that is not updated in place: its old version, the new one
    reuse: dict[int, int]  # what is made that may take the memory of a donated argument, and which
    in_place: tuple[int, ...]  # the numbers of the states that are
    reads: tuple[int, ...]  # of the tensors read from outside
    constants: tuple[int, ...]  # of what is bound once, those tensors included
    steps: tuple[Step, ...]

    @property
    def n_olds(self) -> int:
        """How many old versions come with a call, beside arguments."""
        return sum(n >= self.n_args for n, _ in self.moves)

    @property
    def n_given(self) -> int:
        """How many buffers and sizes come with a call."""
        return self.n_args + self.n_olds + len(self.variables) + len(self.made)


class Recipe(NamedTuple):
    """A draft with its plan: what runs once, what runs at the same time, and where intermediates are."""

    draft: Draft
    early: tuple[Step, ...]  # the prologue
    late: tuple[Step, ...]
    phases: tuple[Phase, ...]  # of the late steps, for devices whose threads can share them
    after: tuple[tuple[int, ...], ...]  # what each of them waits for, for devices that run them side by side
    kept_bytes: dict[int, int]  # of what the prologue makes for the rest, by number
    offsets: dict[int, int]  # of the intermediates in the arena, by number
    arena_bytes: int

    @property
    def bytes_by_kind(self) -> dict[str, int]:
        """What a call takes beside its arguments, state and constants."""
        made = sum(m.n_bytes for k, m in enumerate(self.draft.made) if k not in self.draft.reuse)
        return {"intermediates": self.arena_bytes, "results": made, "made once": sum(self.kept_bytes.values())}


class Outside(NamedTuple):
    """The tensors and BUFFERs that a recipe numbers, each list in the recipe's order."""

    moves: list[Any]  # tensors, or the places of arguments
    in_place: list[Any]
    reads: list[Any]
    constants: list[UOp]
    kept: list[UOp]  # of results that the step does not compute


def record(
    runs: list[Run],
    args: Sequence[UOp],
    outputs: Sequence[UOp],
    states: list[tuple[Any, UOp, UOp]],
    reads: list[tuple[Any, UOp]],
    donated: Collection[int] = (),
) -> tuple[Recipe, Outside]:
    """The recipe of a step that ran `runs` on the BUFFERs `args`, with the realised results `outputs`.

    `states` are (tensor, or the place of an argument; BUFFER before; BUFFER after), `reads` the tensors read from
    outside, `donated` the places of arguments whose memory results may take. Raises JitError for what no replay could
    repeat.
    """
    draft, outside = _Recorder(runs, args).draft(runs, args, outputs, states, reads, donated)
    return planned(draft, outside.constants), outside


def planned(draft: Draft, constants: Sequence[UOp]) -> Recipe:
    """The recipe of a draft whose constants are these BUFFERs today."""
    return _Planner(draft).recipe(dict(zip(draft.constants, constants, strict=True)))


class _Recorder:
    def __init__(self, runs: list[Run], args: Sequence[UOp]) -> None:
        devices = {r.plan.device for r in runs}
        if len(devices) > 1:
            raise JitError("a captured step runs on one device", expected="one device", found=sorted(devices))
        self.device = devices.pop() if devices else None
        self.number: dict[Any, int] = {b: n for n, b in enumerate(args)}
        self.variables = list({v.arg.symbol: v for r in runs for v in r.plan.variables}.values())
        self.sizes = {b: n for r in runs for b, n in zip(r.fresh, r.plan.fresh_bytes, strict=True)}
        self.symbolic = _symbolic_results(runs) if self.variables else {}
        self.kept: list[UOp] = []

    def draft(
        self, runs: list[Run], args: Any, outputs: Any, states: Any, reads: Any, donated: Collection[int]
    ) -> tuple[Draft, Outside]:
        moves, stays = self._number_brought(runs, outputs, states)
        reuse = self._reuse(runs, [(n, args[n]) for n in donated], outputs) if donated else {}
        steps = self._steps(runs)
        reads = [(t, b) for t, b in reads if b in self.number]
        self.reads = [b for _, b in reads]
        news = [(self.number[before], self._value(after)) for _, before, after in moves]
        results_ = tuple(self._value(o) for o in outputs)
        numbered = ((self.number.get(b, -1), b) for b in external(runs, args))
        constants = {n: b for n, b in numbered if n >= 0 and n not in self.given}
        in_place = tuple(self.number[before] for _, before, _ in stays)
        made = tuple(Made(mark(b), self.sizes[b], self.symbolic.get(b)) for b in self.made)
        return Draft(
            self.device, len(args), tuple(self.variables), made, results_, tuple(news), reuse, in_place,
            tuple(self.number[b] for b in self.reads), tuple(constants), tuple(steps),
        ), Outside(
            [t for t, _, _ in moves], [t for t, _, _ in stays], [t for t, _ in reads], [*constants.values()], self.kept
        )  # fmt: skip

    def _number_brought(self, runs: list[Run], outputs: Sequence[UOp], states: Any) -> tuple[list, list]:
        """Number what each call brings: arguments, old versions, sizes, fresh memory; then the states in place.

        The states that move, and those that stay where they are.
        """
        uses = uses_of(runs) if states else {}
        written = {b for r in runs for b in r.fresh}
        returned = {base_of(o) for o in outputs}
        stays, moves = [], []
        afters = Counter(after for *_, after in states)
        for tensor, before, after in states:
            hidden = before not in self.number and before not in returned and after not in returned and after in written
            if hidden and afters[after] == 1 and may_overwrite(before, after, uses):
                stays.append((tensor, before, after))
            elif after is not before:
                moves.append((tensor, before, after))
        for _, before, _ in moves:
            self.number.setdefault(before, len(self.number))
        self.n_olds = len(self.number)
        for v in self.variables:
            self.number["size", v.arg.symbol] = len(self.number)
        own = {after for _, _, after in stays}
        bases = [*(after for _, _, after in moves), *returned]
        self.made = {b: k for k, b in enumerate(dict.fromkeys(b for b in bases if b in written and b not in own))}
        for b in self.made:
            self.number[b] = len(self.number)
        self.given = set(range(len(self.number)))  # what a call may change
        for _, before, after in stays:
            self.number[after] = n = self.number.setdefault(before, len(self.number))
            self.given.add(n)
        return moves, stays

    def _reuse(self, runs: list[Run], donated: list[tuple[int, UOp]], outputs: Sequence[UOp]) -> dict[int, int]:
        """For each result, the donated argument that it may be written over, if there is one."""
        uses = uses_of(runs)
        returned = {base_of(o) for o in outputs}
        free = {n: b for n, b in donated if b not in returned}
        out: dict[int, int] = {}
        for b, k in self.made.items():
            n = next((n for n, a in free.items() if b not in self.symbolic and may_overwrite(a, b, uses)), None)
            if n is not None:
                out[k] = n
                del free[n]
        return out

    def _value(self, u: UOp) -> Value:
        """What the node of a result will be at a replay; without memory of the capture."""
        b = base_of(u)
        n = self.number.get(b, -1)
        if b in self.made:
            if b in self.symbolic and u is not b:
                expected = "a result with a buffer of its own (contiguous())"
                raise JitError("a captured step returns a view of symbolic size", expected=expected, found=u.op)
            source, at = MADE, self.made[b]
        elif 0 <= n < self.n_olds:
            source, at = BROUGHT, n
        elif b in self.reads:
            source, at = READ, self.reads.index(b)
        else:
            source, at = KEPT, len(self.kept)
            self.kept.append(b)
        return Value(source, at, substitute(u, {b: mark(b)}), mark(b))

    def _steps(self, runs: list[Run]) -> list[Step]:
        out = []
        for k, r in enumerate(runs):
            names: list[Any] = [*r.inputs, *r.fresh, *((k, i) for i in range(len(r.plan.offsets)))]
            names += [("size", v.arg.symbol) for v in r.plan.variables]
            for item, call in zip(r.plan.launches, r.plan.kernels, strict=True):
                args = tuple(self.number.setdefault(names[a], len(self.number)) for a in item.args)
                if len(args) == 2 and args[0] == args[1] and is_copy(call.src[0]):
                    continue  # of a state to itself: parts of it are stored in place
                kernel = from_parts(call.src[0], len(args)).kernel if item.offsets else None
                out.append(Step(item._replace(args=args), call, written(args, call), kernel))
        return out


class _Planner:
    """Plans the steps of a draft."""

    def __init__(self, draft: Draft):
        self.draft, self.device = draft, draft.device
        self.given = {*range(draft.n_given), *draft.in_place}  # what a call may change
        used = (*self.given, *draft.constants, *(n for s in draft.steps for n in s.launch.args))
        self.new = count(1 + max(used, default=-1)).__next__  # the number of one more buffer, of the capture's own

    def recipe(self, constants: dict[int, UOp]) -> Recipe:
        framing, steps = self._framing([*self.draft.steps])
        early, late = self._hoisted(steps, constants) if settings.HOIST else ([], steps)
        kept_bytes = results(early, late)
        first_made = self.draft.n_given - len(self.draft.made)
        same = {first_made + k: n for k, n in self.draft.reuse.items()}
        together = self._phases(late, same)
        when = times(together, len(late)) if together else [*range(len(late))]
        when = [*range(len(early)), *(len(early) + t for t in when)]
        is_ordered = self.device is not None and isinstance(Device[self.device], Ordered)
        needs = dependencies(_uses(late), {}, same) if is_ordered else ()
        memory = self._arena([*early, *late], when, kept_bytes, framing, needs)
        after = dependencies(_uses(late), _ranges(late, memory), same) if is_ordered else ()
        return Recipe(
            self.draft, (*framing, *early), tuple(late), together, after, kept_bytes, memory.offsets, memory.arena_bytes
        )

    def _hoisted(self, steps: list[Step], constants: dict[int, UOp]) -> tuple[list[Step], list[Step]]:
        """The steps of the prologue, and the others; what somebody outside can write to now is no constant for them."""
        writable = {n for n, b in constants.items() if writes_seen(b) == WRITABLE}
        early, late = split(steps, self.given | writable)
        frozen = (constants.keys() - writable) | {n for s in early for n in s.written}
        if self.device is None:
            return early, late
        fills, late = hoist(late, frozen, self.device, self.new, constants)
        return early + fills, late

    def _framing(self, steps: list[Step]) -> tuple[list[Step], list[Step]]:
        """The steps that store what is around a value, and the others: the first run once, in the prologue, as the
        memory they store in stays so. Not where a Variable says how much lies around, or of how many rows.
        """
        infos = [s.call.src[0].arg for s in steps]
        once = [bool(settings.HOIST) and isinstance(i, KernelInfo) and i.frames for i in infos]
        once = [o and self.given.isdisjoint(s.launch.args) for o, s in zip(once, steps, strict=True)]
        pairs = [*zip(steps, once, strict=True)]
        return [s for s, is_once in pairs if is_once], [s for s, is_once in pairs if not is_once]

    def _phases(self, late: list[Step], same: Mapping[int, int]) -> tuple[Phase, ...]:
        """What may run at the same time, for devices that ask; () for others and one thread."""
        device = None if self.device is None else Device[self.device]
        if not isinstance(device, Threaded) or device.target.n_threads < 2:
            return ()
        return phases(late, device.target.n_threads, same)

    def _arena(
        self,
        steps: list[Step],
        when: list[int],
        kept: dict[int, int],
        framing: list[Step],
        needs: Sequence[tuple[int, ...]],
    ) -> MemoryPlan:
        """Offsets of what a step writes and nobody else sees, alive from its first use to its last. What is framed
        shares memory with others that have the same around them, and with nothing else. `needs`: what each of the last
        steps waits for, where they run side by side; those before them run one after the other.
        """
        n_early = len(steps) - len(needs) if needs else 0
        behind = [(1 << i) - 1 for i in range(n_early)]
        behind += [b << n_early | (1 << n_early) - 1 for b in all_before(needs)] if needs else [0] * len(steps)
        private = {n: n_bytes for s in steps for n, n_bytes in s.written.items() if n not in self.given | kept.keys()}
        lives: dict[int, Life] = {}
        for i, (at, s) in enumerate(zip(when, steps, strict=True)):
            for n in s.launch.args:
                if n in private:
                    life = lives.get(n) or Life(private[n], at, at, 0, behind[i])
                    lives[n] = life._replace(last=at, users=life.users | 1 << i)
        groups: dict[UOp | None, dict[int, Life]] = {None: lives}
        for s in framing:
            group = groups.setdefault(s.call.src[0], {})
            group.update((n, lives.pop(n)) for n in s.written if n in lives)
        offsets: dict[int, int] = {}
        n_bytes = 0
        for group in groups.values():
            align = 1 if self.device is None else Device[self.device].target.align_bytes
            plan = place_apart(group, align) if needs else place(group, align)
            offsets.update((n, n_bytes + offset) for n, offset in plan.offsets.items())
            n_bytes += plan.arena_bytes
        return MemoryPlan(offsets, n_bytes)


def _uses(steps: Sequence[Step]) -> list[Use]:
    return [Use(s.launch.args, s.written.keys()) for s in steps]


def _ranges(steps: Sequence[Step], memory: MemoryPlan) -> dict[int, tuple[int, int]]:
    """The bytes of the arena that intermediates take, from and to."""
    sizes = {n: n_bytes for s in steps for n, n_bytes in s.written.items() if n in memory.offsets}
    return {n: (memory.offsets[n], memory.offsets[n] + n_bytes) for n, n_bytes in sizes.items()}


def mark(b: UOp) -> UOp:
    """A BUFFER of the kind of `b`, without memory."""
    return node("BUFFER", b.src, BufferArg(0, b.dtype, b.arg.device))


def external(runs: list[Run], args: Sequence[UOp]) -> list[UOp]:
    """The buffers a step reads that are neither its arguments nor made by it."""
    made: set[UOp] = set(args)
    out: dict[UOp, None] = {}
    for r in runs:
        out.update((b, None) for b in r.inputs if b not in made and b.storage is not None)
        made.update(r.fresh)
    return list(out)


def _symbolic_results(runs: list[Run]) -> dict[UOp, tuple]:
    """The shapes of the BUFFERs whose size is symbolic.

    Raises JitError for a run that was planned for one size: it reads such a BUFFER in the shape of the bound values.
    """
    out: dict[UOp, tuple] = {}
    for r in runs:
        if any(b in out and b.shape != out[b] for b in r.inputs):
            expected = "one batch: no realize() in between"
            raise JitError("a captured step computes a value of symbolic size, then reads it", expected=expected)
        shapes = ((b, t.shape) for b, t in zip(r.fresh, r.plan.fresh, strict=True))
        out.update((b, shape) for b, shape in shapes if any(n.__class__ is not int for n in shape))
    return out


__all__ = [
    "BROUGHT", "KEPT", "MADE", "READ", "Draft", "Made", "Outside", "Recipe", "Value", "external", "mark", "planned",
    "record",
]  # fmt: skip
