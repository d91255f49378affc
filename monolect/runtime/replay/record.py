"""Record the runs of a captured call as one step of the COMMAND stage: the runs joined over PARAMs with roles.

Each buffer that the step touched is an argument (supplied at each call), a state (a tensor that the step reads and
assigns), a result (fresh memory at each call), a constant, or private. A state is updated in place if that is safe;
otherwise it moves, which means that each call rebinds the tensor to fresh memory. `command/forms.py` has the grammar,
`StepInfo` the roles.

What it is not: it holds no tensors and no bound addresses (`runtime/replay/capture.py`), so its nodes can be written to
a file. A call supplies arguments, old versions of moving states, sizes and results, which have the first slots, in this
order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from monolect.base.errors import JitError
from monolect.command.passes import joined, services
from monolect.command.rewrites.in_place import Uses, may_overwrite, uses_of
from monolect.ir.ops import BufferArg, ParamArg, StepInfo
from monolect.ir.uop import UOp, node, rebuild, shape_source, substitute
from monolect.runtime.buffer import VIEWS, base_of, parts_of
from monolect.runtime.realize.execute import Run
from monolect.runtime.realize.plan import target_of
from monolect.runtime.replay.hoist import StepBudget, packed_blocks
from monolect.runtime.replay.prologue import WRITABLE, writes_seen
from monolect.schedule.result import schedule_of


class Outside(NamedTuple):
    """The tensors and BUFFERs outside of a step, each list in the order of their slots. A Capture of the step binds
    them.

    A tensor on several devices has a slot for each; `reads` lists it once for each. `args` and `results` are empty if
    all are on one device.
    """

    moves: list[Any]  # moving states: tensors, or numbers of arguments
    in_place: list[Any]  # states updated in place: tensors
    reads: list[Any]  # tensors that are read only
    constants: list[UOp]  # BUFFERs of `reads`, then of constants
    args: Sequence[UOp] = ()  # placeholders of the arguments
    results: Sequence[UOp | None] = ()  # for each result on several devices its view of a placeholder


def record(
    runs: list[Run],
    args: Sequence[UOp],
    outputs: Sequence[UOp],
    states: list[tuple[Any, UOp, UOp]],
    reads: list[tuple[Any, UOp]],
    donated: Collection[int] = (),
) -> tuple[UOp, Outside, str | None]:
    """Return (step, Outside, name of the device) for a call that ran `runs` on the BUFFERs `args`. Outside has the
    tensors that the step reads or assigns besides its arguments.

    A value on several devices becomes one value for each device: an argument, state or result of its own.

    `runs`: the executed schedules, in order. `outputs`: the realized results. `states`: (tensor or number of an
    argument, BUFFER before, BUFFER after). `reads`: (tensor read from outside, its BUFFER). `donated`: numbers of the
    arguments whose memory results may take.
    Raises JitError for effects that a replay cannot repeat. The name of the device is None if `runs` is empty.
    """
    return _Recorder(runs, args).step(args, outputs, states, reads, donated)


class _Recorder:
    """A builder of a step: it assigns a PARAM and a role to each buffer of `runs`, the schedules that a call
    executed.
    """

    def __init__(self, runs: list[Run], args: Sequence[UOp]) -> None:
        self.runs = runs
        self.device = runs[0].plan.device if runs else None
        self.params: list[UOp] = []
        self.roles: list[str] = []
        self.param: dict[UOp, UOp] = {}  # PARAM by BUFFER
        self.symbolic = _symbolic_results(runs)
        for b in args:
            for p in parts_of(b):
                self._new("argument", p)

    def _new(self, role: str, b: UOp) -> UOp:
        """Return a new PARAM, with `role` and the next slot, for the BUFFER `b`."""
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
        """Build the step and return (step, Outside, name of the device). Outside has the tensors that the step reads or
        assigns besides its arguments.

        `args`: BUFFERs of the arguments. `outputs`: the realized results. `states`: (tensor or number of an argument,
        BUFFER before, BUFFER after). `reads`: (tensor read from outside, its BUFFER). `donated`: numbers of the
        arguments whose memory results may take. The name of the device is None if there are no runs.
        """
        written = {b for r in self.runs for b in r.fresh}
        returned = {p for o in outputs for p in parts_of(base_of(o))}
        uses = _uses(self.runs) if states or donated else {}
        stays, moves = self._split(states, written, returned, uses)
        kept, moved = _pairs(stays), _pairs(moves)
        values = [v for o in outputs for v in _on_each_device(o)]
        for before, _ in moved:
            if before not in self.param:
                self._new("old", before)
        sizes = self._sizes()
        own = {after for _, after in kept}
        bases = [*(after for _, after in moved), *map(base_of, values)]
        made = [b for b in dict.fromkeys(bases) if b in written and b not in own]
        for b in made:
            self._new("result", b)
        for before, after in kept:
            self.param[after] = self.param.get(before) or self._new("state", before)
        given = [(self.param[args[n]].arg.slot, args[n]) for n in donated if args[n] in self.param]
        reuse = self._reuse(made, given, returned, uses) if given else ()
        constants = self._constants(reads, values, moved)
        at = {self.param[p].arg.slot: t for t, b in reads for p in parts_of(b) if p in self.param}
        private = self._private()
        known = [(self.param[b].arg.slot, b) for b in constants]
        linear = node("LINEAR", tuple([self._run(r, sizes, private) for r in self.runs]))
        outs = [self._value(v, linear, written) for v in values]
        news = [self._value(after, linear, written) for _, after in moved]
        finals = [node("AFTER", (self.param[before], linear)) for before, _ in kept]
        info = StepInfo(
            tuple(self.roles), len(outs), tuple([self.param[before].arg.slot for before, _ in moved]), tuple(reuse),
            tuple([k for k, b in known if writes_seen(b) == WRITABLE]), True,
        )  # fmt: skip
        bound = dict(known)
        applied = [bound.get(k, p) for k, p in enumerate(self.params)]
        step = node("FUNCTION", (node("TUPLE", (*outs, *news, *finals)), *applied), info)
        if self.device is not None:
            step = joined(step, target_of(self.device))
        outside = Outside(
            [t for t, _, _ in moves],
            [t for t, _, _ in stays],
            [at[k] for k, role in enumerate(self.roles) if role == "read"],
            [b for _, b in known],
        )
        if any(b.arg.device.__class__ is tuple for b in (*args, *map(base_of, outputs))):
            results = [_placeholder(o) if base_of(o).arg.device.__class__ is tuple else None for o in outputs]
            outside = outside._replace(args=[mark(b) for b in args], results=results)
        return step, outside, self.device

    def _split(
        self, states: Any, written: set[UOp], returned: set[UOp], uses: Uses
    ) -> tuple[list[tuple[Any, UOp, UOp]], list[tuple[Any, UOp, UOp]]]:
        """Split `states`, triples (tensor, BUFFER before, BUFFER after), into (states that stay, states that move).

        The old memory of a state that stays can take the new value. The tensor of a state that moves gets the new
        BUFFER at each call. States whose BUFFER is unchanged are left out. `written`: BUFFERs that the runs wrote;
        `returned`: BUFFERs of results; `uses`: how kernels use each BUFFER.
        """
        stays, moves = [], []
        afters = Counter(p for *_, after in states for p in parts_of(after))

        def may_stay(before: UOp, after: UOp) -> bool:
            hidden = before not in self.param and before not in returned and after not in returned and after in written
            return hidden and afters[after] == 1 and may_overwrite(before, after, uses)

        for tensor, before, after in states:
            if all(may_stay(b, a) for b, a in _pairs([(tensor, before, after)])):
                stays.append((tensor, before, after))
            elif after is not before:
                moves.append((tensor, before, after))
        return stays, moves

    def _sizes(self) -> list[UOp]:
        """Append a PARAM of role "size" for each Variable of the runs, and return these PARAMs."""
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
        """Return (slot of a result, number of a donated argument) pairs: the result may take the memory of this
        argument.

        `made`: BUFFERs of the results. `donated`: (number, BUFFER) of donated arguments. `returned`: BUFFERs that the
        call returns. `uses`: how kernels use each BUFFER.
        """
        free = {n: b for n, b in donated if b not in returned}
        out: list[tuple[int, int]] = []
        for b in made:
            n = next((n for n, a in free.items() if b not in self.symbolic and may_overwrite(a, b, uses)), None)
            if n is not None:
                out.append((self.param[b].arg.slot, n))
                del free[n]
        return out

    def _constants(self, reads: Any, results: Sequence[UOp], moved: Sequence[tuple[UOp, UOp]]) -> list[UOp]:
        """Append PARAMs for the BUFFERs from outside that have none yet, and return these BUFFERs in the order of their
        slots.

        They are the BUFFERs that the runs read, those of `results` (the values that the call returns), and the new ones
        of `moved`, (BUFFER before, BUFFER after) of moving states. BUFFERs that a run reads and that `reads`, (tensor,
        its BUFFER), lists come first, with the role "read"; all others have the role "constant".
        """
        touched = external([(r.inputs, r.fresh) for r in self.runs], [*self.param])
        values = [*map(base_of, results), *(after for _, after in moved)]
        mine = {p for _, b in reads for p in parts_of(b)}.intersection(touched)
        found = [b for b in dict.fromkeys((*touched, *values)) if b not in self.param]
        for role, wanted in (("read", True), ("constant", False)):
            for b in found:
                if (b in mine) is wanted:
                    self._new(role, b)
        return sorted(found, key=lambda b: int(self.param[b].arg.slot))

    def _private(self) -> dict[UOp, UOp]:
        """Return {buffer of the runs that has no PARAM: BUFFER node without memory that represents it in the step}."""
        every = dict.fromkeys(b for r in self.runs for b in (*r.inputs, *r.fresh) if b not in self.param)
        return {b: node("BUFFER", b.src, BufferArg(k, b.dtype, b.arg.device)) for k, b in enumerate(every)}

    def _run(self, r: Run, sizes: list[UOp], private: dict[UOp, UOp]) -> UOp:
        """Return the schedule of the run `r`, applied to the PARAMs and `private` BUFFERs of its inputs and results,
        and to `sizes`.
        """
        args = [self.param[b] if b in self.param else private[b] for b in (*r.inputs, *r.fresh)]
        return node("FUNCTION", (r.plan.schedule, *args, *sizes))

    def _value(self, u: UOp, linear: UOp, written: set[UOp]) -> UOp:
        """Return `u`, a result or the new version of a state, with its BUFFER replaced by the PARAM; inside an AFTER of
        the program `linear` if its BUFFER is in `written`.
        Raises JitError for a view of a BUFFER of symbolic size.
        """
        b = base_of(u)
        if b in self.symbolic and u is not b:
            expected = "a result with a buffer of its own (contiguous())"
            raise JitError("a captured step returns a view of symbolic size", expected=expected, found=u.op)
        p, u = self.param[b], _unmarked(u)
        if b not in written:
            return p if u is b else substitute(u, {b: p})
        return node("AFTER", (p if u is b else substitute(u, {b: p}), linear))


def _unmarked(u: UOp) -> UOp:
    """Return `u`, a view, without the ops DETACH and CONTIGUOUS_BACKWARD, which matter only for gradients."""
    if u.op in ("DETACH", "CONTIGUOUS_BACKWARD"):
        return _unmarked(u.src[0])
    return rebuild(u, (_unmarked(u.src[0]), *u.src[1:])) if u.op in VIEWS else u


def _uses(runs: list[Run]) -> Uses:
    """Return, for each BUFFER that `runs` read or wrote, its uses: (number of the kernel launch, kernel, slot in the
    kernel).
    """
    items = []
    for r in runs:
        names = dict(enumerate(r.inputs)) | {len(r.inputs) + k: b for k, b in enumerate(r.fresh)}
        fresh = {b: len(r.inputs) + k for k, b in enumerate(r.plan.fresh)}
        for call in schedule_of(r.plan.schedule).linear.src:
            at = [b.arg.slot if b.op == "PARAM" and b.arg.name is None else fresh.get(b, -1) for b in call.src[1:]]
            items.append((call.src[0], [names.get(k, b) for k, b in zip(at, call.src[1:], strict=True)]))
    return uses_of(items)


def _pairs(states: Sequence[tuple[Any, UOp, UOp]]) -> list[tuple[UOp, UOp]]:
    """Return (BUFFER before, BUFFER after) for each state and each of its devices. `states`: (tensor, BUFFER before,
    BUFFER after).
    """
    return [p for _, before, after in states for p in zip(parts_of(before), parts_of(after), strict=True)]


def _on_each_device(u: UOp) -> tuple[UOp, ...]:
    """Return the parts of the result `u`, the BUFFERs on each of its devices; (u,) if it is on one device."""
    b = base_of(u)
    return tuple(b.storage.parts) if b.arg.device.__class__ is tuple else (u,)


def _placeholder(u: UOp) -> UOp:
    """Return `u`, a view of a BUFFER, with the BUFFER replaced by a placeholder without memory."""
    b, u = base_of(u), _unmarked(u)
    return mark(b) if u is b else substitute(u, {b: mark(b)})


def mark(b: UOp) -> UOp:
    """Return a placeholder: a BUFFER without memory, with the shape, dtype and devices of `b`."""
    return node("BUFFER", b.src, BufferArg(0, b.dtype, b.arg.device, "GLOBAL", b.arg.axis))


def external(runs: Iterable[tuple[Sequence[UOp], Sequence[UOp]]], args: Sequence[UOp]) -> list[UOp]:
    """Return the BUFFERs that `runs` read and that are neither in `args` nor written by an earlier run.

    `runs`: (BUFFERs that the run reads, BUFFERs that it writes) of each run.
    """
    made: set[UOp] = set(args)
    out: dict[UOp, None] = {}
    for read, written in runs:
        out.update((b, None) for b in read if b not in made and b.storage is not None)
        made.update(written)
    return list(out)


def _symbolic_results(runs: list[Run]) -> dict[UOp, tuple]:
    """Return {BUFFER: symbolic shape} for the BUFFERs written by `runs` that have a symbolic shape.

    Raises JitError if a later run reads such a BUFFER, as that run was planned for the bound size only.
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
