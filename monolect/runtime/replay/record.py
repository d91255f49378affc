"""What a captured step ran, as one step of the COMMAND stage: the runs joined over PARAMs with roles.

Each buffer that the step touched is an argument (given anew at each call), state (a tensor that the step reads and
assigns: updated in place where that is safe), a result (fresh memory at each call), a constant, or private.
`command/forms.py` has the grammar, `StepInfo` the roles.

What it is not: it holds no tensors and no bound addresses (`runtime/replay/capture.py`), so its nodes can be written to
a file. Arguments, old versions of moving states, sizes and results come with a call and have the first slots, in this
order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from monolect.base.errors import JitError
from monolect.command.passes import joined, services
from monolect.command.rewrites.in_place import Uses, may_overwrite, uses_of
from monolect.ir.ops import BufferArg, ParamArg, StepInfo
from monolect.ir.uop import UOp, node, rebuild, shape_source, substitute
from monolect.runtime.buffer import VIEWS, base_of
from monolect.runtime.realize.execute import Run
from monolect.runtime.realize.plan import target_of
from monolect.runtime.replay.hoist import StepBudget, packed_blocks
from monolect.runtime.replay.prologue import WRITABLE, writes_seen
from monolect.schedule.result import schedule_of


class Outside(NamedTuple):
    """The tensors and BUFFERs that a step names by slot, each list in the order of the slots."""

    moves: list[Any]  # tensors, or the places of arguments
    in_place: list[Any]
    reads: list[Any]
    constants: list[UOp]  # of reads and constants


def record(
    runs: list[Run],
    args: Sequence[UOp],
    outputs: Sequence[UOp],
    states: list[tuple[Any, UOp, UOp]],
    reads: list[tuple[Any, UOp]],
    donated: Collection[int] = (),
) -> tuple[UOp, Outside, str | None]:
    """The step that ran `runs` on the BUFFERs `args`, with the realised results `outputs`; and its device.

    `states` are (tensor, or the place of an argument; BUFFER before; BUFFER after), `reads` the tensors read from
    outside, `donated` the places of arguments whose memory results may take. Raises JitError for what no replay could
    repeat.
    """
    return _Recorder(runs, args).step(args, outputs, states, reads, donated)


class _Recorder:
    def __init__(self, runs: list[Run], args: Sequence[UOp]) -> None:
        self.runs = runs
        self.device = runs[0].plan.device if runs else None
        self.params: list[UOp] = []
        self.roles: list[str] = []
        self.param: dict[UOp, UOp] = {}  # of each BUFFER
        self.symbolic = _symbolic_results(runs)
        for b in args:
            self._new("argument", b)

    def _new(self, role: str, b: UOp) -> UOp:
        """A PARAM for a BUFFER."""
        slot = len(self.params)
        shape = self.symbolic.get(b, b.shape)
        p = node("PARAM", (shape_source(shape),), ParamArg(slot, b.dtype, b.arg.device, "GLOBAL"))
        self.params.append(p)
        self.roles.append(role)
        self.param[b] = p
        return p

    def step(
        self, args: Sequence[UOp], outputs: Sequence[UOp], states: Any, reads: Any, donated: Collection[int]
    ) -> tuple[UOp, Outside, str | None]:
        written = {b for r in self.runs for b in r.fresh}
        returned = {base_of(o) for o in outputs}
        uses = _uses(self.runs) if states or donated else {}
        stays, moves = self._split(states, written, returned, uses)
        for _, before, _ in moves:
            if before not in self.param:
                self._new("old", before)
        sizes = self._sizes()
        own = {after for _, _, after in stays}
        bases = [*(after for _, _, after in moves), *map(base_of, outputs)]
        made = [b for b in dict.fromkeys(bases) if b in written and b not in own]
        for b in made:
            self._new("result", b)
        for _, before, after in stays:
            self.param[after] = self.param.get(before) or self._new("state", before)
        reuse = self._reuse(made, [(n, args[n]) for n in donated], returned, uses) if donated else ()
        constants = self._constants(reads, outputs, moves)
        at = {self.param[b].arg.slot: t for t, b in reads if b in self.param}
        private = self._private()
        known = [(self.param[b].arg.slot, b) for b in constants]
        linear = node("LINEAR", tuple([self._run(r, sizes, private) for r in self.runs]))
        outs = [self._value(o, linear, written) for o in outputs]
        news = [self._value(after, linear, written) for _, _, after in moves]
        kept = [node("AFTER", (self.param[before], linear)) for _, before, _ in stays]
        info = StepInfo(
            tuple(self.roles), len(outs), tuple([self.param[before].arg.slot for _, before, _ in moves]), tuple(reuse),
            tuple([k for k, b in known if writes_seen(b) == WRITABLE]), True,
        )  # fmt: skip
        bound = dict(known)
        applied = [bound.get(k, p) for k, p in enumerate(self.params)]
        step = node("FUNCTION", (node("TUPLE", (*outs, *news, *kept)), *applied), info)
        if self.device is not None:
            step = joined(step, target_of(self.device))
        outside = Outside(
            [t for t, _, _ in moves],
            [t for t, _, _ in stays],
            [at[k] for k, role in enumerate(self.roles) if role == "read"],
            [b for _, b in known],
        )
        return step, outside, self.device

    def _split(
        self, states: Any, written: set[UOp], returned: set[UOp], uses: Uses
    ) -> tuple[list[tuple[Any, UOp, UOp]], list[tuple[Any, UOp, UOp]]]:
        """The states that stay where they are, and those that move."""
        stays, moves = [], []
        afters = Counter(after for *_, after in states)
        for tensor, before, after in states:
            hidden = before not in self.param and before not in returned and after not in returned and after in written
            if hidden and afters[after] == 1 and may_overwrite(before, after, uses):
                stays.append((tensor, before, after))
            elif after is not before:
                moves.append((tensor, before, after))
        return stays, moves

    def _sizes(self) -> list[UOp]:
        """A PARAM for each Variable."""
        found = {v.arg.symbol: v for r in self.runs for v in r.plan.variables}
        out = []
        for v in found.values():
            out.append(node("PARAM", v.src, v.arg._replace(slot=len(self.params))))
            self.params.append(out[-1])
            self.roles.append("size")
        return out

    def _reuse(
        self, made: Sequence[UOp], donated: list[tuple[int, UOp]], returned: set[UOp], uses: Uses
    ) -> list[tuple[int, int]]:
        """For each result, the donated argument that it may be written over, if there is one."""
        free = {n: b for n, b in donated if b not in returned}
        out: list[tuple[int, int]] = []
        for b in made:
            n = next((n for n, a in free.items() if b not in self.symbolic and may_overwrite(a, b, uses)), None)
            if n is not None:
                out.append((self.param[b].arg.slot, n))
                del free[n]
        return out

    def _constants(self, reads: Any, outputs: Sequence[UOp], moves: Any) -> list[UOp]:
        """The BUFFERs from outside, in the order of their new slots: tensors that are read, then the others."""
        touched = external(self.runs, [*self.param])
        values = [*map(base_of, outputs), *(after for _, _, after in moves)]
        mine = {b for _, b in reads}.intersection(touched)
        found = [b for b in dict.fromkeys((*touched, *values)) if b not in self.param]
        for role, wanted in (("read", True), ("constant", False)):
            for b in found:
                if (b in mine) is wanted:
                    self._new(role, b)
        return sorted(found, key=lambda b: int(self.param[b].arg.slot))

    def _private(self) -> dict[UOp, UOp]:
        """A BUFFER without memory for each one that only the step knows."""
        every = dict.fromkeys(b for r in self.runs for b in (*r.inputs, *r.fresh) if b not in self.param)
        return {b: node("BUFFER", b.src, BufferArg(k, b.dtype, b.arg.device)) for k, b in enumerate(every)}

    def _run(self, r: Run, sizes: list[UOp], private: dict[UOp, UOp]) -> UOp:
        """A run applied to PARAMs and private BUFFERs."""
        args = [self.param[b] if b in self.param else private[b] for b in (*r.inputs, *r.fresh)]
        return node("FUNCTION", (r.plan.schedule, *args, *sizes))

    def _value(self, u: UOp, linear: UOp, written: set[UOp]) -> UOp:
        """A result, or the new version of a state, as a view of a PARAM."""
        b = base_of(u)
        if b in self.symbolic and u is not b:
            expected = "a result with a buffer of its own (contiguous())"
            raise JitError("a captured step returns a view of symbolic size", expected=expected, found=u.op)
        p, u = self.param[b], _unmarked(u)
        if b not in written:
            return p if u is b else substitute(u, {b: p})
        return node("AFTER", (p if u is b else substitute(u, {b: p}), linear))


def _unmarked(u: UOp) -> UOp:
    """A view without DETACH and CONTIGUOUS_BACKWARD: a replay has no graph to mark."""
    if u.op in ("DETACH", "CONTIGUOUS_BACKWARD"):
        return _unmarked(u.src[0])
    return rebuild(u, (_unmarked(u.src[0]), *u.src[1:])) if u.op in VIEWS else u


def _uses(runs: list[Run]) -> Uses:
    """The uses of each BUFFER that runs read or wrote."""
    items = []
    for r in runs:
        names = dict(enumerate(r.inputs)) | {len(r.inputs) + k: b for k, b in enumerate(r.fresh)}
        fresh = {b: len(r.inputs) + k for k, b in enumerate(r.plan.fresh)}
        for call in schedule_of(r.plan.schedule).linear.src:
            at = [b.arg.slot if b.op == "PARAM" and b.arg.name is None else fresh.get(b, -1) for b in call.src[1:]]
            items.append((call.src[0], [names.get(k, b) for k, b in zip(at, call.src[1:], strict=True)]))
    return uses_of(items)


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


services.packed_blocks, services.budget = packed_blocks, StepBudget

__all__ = ["Outside", "external", "mark", "record"]
