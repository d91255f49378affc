"""Define Module, the base class of layers, and Parameter.

What it is for: it has the `parameters`, `state_dict`, `train`, `eval`, hooks and calls that PyTorch users expect.
Attributes are plain attributes; a module finds its tensors and submodules by scanning them.
What it is not: it has no backward hooks and no lazy modules. Plain classes work as models too (`nn.state` walks them).
Invariant: names in a state dict are PyTorch's, so weights move between the two libraries under the same keys.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar

from monolect.base.absent import mark_absent
from monolect.base.dtype import DType, as_dtype, dtypes
from monolect.base.errors import ArgumentError, DTypeError
from monolect.nn.state import IncompatibleKeys, all_tensors, get_state_dict, load_state_dict
from monolect.tensor.base import Data, DeviceLike, DTypeLike, as_device
from monolect.tensor.state.hooks import Hook as _Hook
from monolect.tensor.state.leaves import is_parameter
from monolect.tensor.tensor import Tensor

if TYPE_CHECKING:
    P = ParamSpec("P")
    R_co = TypeVar("R_co", covariant=True)

    class _HasForward(Protocol[P, R_co]):
        def forward(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    class _CallForward:
        def __get__(self, module: _HasForward[P, R_co], owner: Any = None) -> Callable[P, R_co]: ...


class _IsLeaf(type):
    def __instancecheck__(cls, x: object) -> bool:
        return is_parameter(x)


class Parameter(metaclass=_IsLeaf):
    """Make a tensor that requires a gradient: `Parameter(data)` is a Tensor, and a leaf of `backward`.

    A tensor that requires a gradient, or did before it was frozen, is an instance of this class. With `requires_grad`
    False it is a frozen one. Raises GradientError for data that are not floats and shall require a gradient.

    >>> p = nn.Parameter(Tensor([1.0, 2.0]))
    >>> p.requires_grad, isinstance(p, nn.Parameter), isinstance(p * 2, nn.Parameter)
    (True, True, False)
    """

    def __new__(cls, data: Data, requires_grad: bool = True) -> Tensor:  # type: ignore[misc]
        """See the class."""
        t = data.detach() if isinstance(data, Tensor) else Tensor(data)
        t._is_frozen = not requires_grad
        return t.requires_grad_(requires_grad)


class _Listed(list[Tensor]):
    """A list for which `next` works, as for the iterator that PyTorch returns."""

    _rest: Iterator[Tensor] | None = None

    def __next__(self) -> Tensor:
        self._rest = self._rest or iter(self)
        return next(self._rest)


class Hook(_Hook):
    """A function that a module calls, until `remove()`."""

    def __init__(self, hooks: list[Hook], function: Callable[..., Any], with_kwargs: bool):
        super().__init__(hooks, function)
        self.with_kwargs = with_kwargs


class _Hooks:
    """The hooks of a module, in the order of their calls: before and after `forward`."""

    def __init__(self) -> None:
        self.before: list[Hook] = []
        self.after: list[Hook] = []


class _Calls(threading.local):
    """The ids of the modules that this thread is calling. The only instance is `_calls`."""

    def __init__(self) -> None:
        self.modules: set[int] = set()


_calls = _Calls()


class Module:
    """A layer or a model: define `__init__` and `forward`, then call it.

    `training` starts as True, as in PyTorch; `eval()` sets it to False here and in all submodules. `buffer_names` lists
    the attributes that are state and not parameters. `unsaved_names` lists those that a state dict leaves out, such as
    tensors that `forward` keeps.

    >>> class Double(Module):
    ...     def forward(self, x):
    ...         return x * 2
    >>> Double()(Tensor([1.0])).tolist()
    [2.0]
    """

    training: bool = True
    buffer_names: tuple[str, ...] = ()
    unsaved_names: tuple[str, ...] = ()
    _inner = frozenset(("_hooks",))  # attributes whose own names are not in the names of a state dict

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the result of a call. Raises NotImplementedError where a subclass defines no `forward`.

        >>> nn.Identity().forward(Tensor([1.0])).tolist()
        [1.0]
        """
        raise NotImplementedError(f"{type(self).__name__} defines no forward")

    if TYPE_CHECKING:
        __call__ = _CallForward()  # a call takes and returns what `forward` of the subclass does
    else:

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            hooks, outer = self.__dict__.get("_hooks"), _calls.modules
            _calls.modules = {*outer, id(self)}
            try:
                return self.forward(*args, **kwargs) if hooks is None else self._hooked(hooks, args, kwargs)
            finally:
                _calls.modules = outer

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute. A tensor that is first set while this module is called is no state, such as weights of
        attention that `forward` keeps: state dicts leave it out. A parameter or a buffer is state.
        """
        if id(self) in _calls.modules and isinstance(value, Tensor) and not isinstance(self.__dict__.get(name), Tensor):
            known = name in self.buffer_names or name in self.unsaved_names or is_parameter(value)
            if not known:
                object.__setattr__(self, "unsaved_names", (*self.unsaved_names, name))
        object.__setattr__(self, name, value)

    # ---- contents ----------------------------------------------------------------------------------------------------
    def _entries(self) -> dict[str, Any]:
        """Return the attributes that may hold tensors or modules, by their names in a state dict."""
        own = vars(self)
        if self._inner.isdisjoint(own):
            return own
        return {k: v for k, v in own.items() if k not in self._inner} | self._contents()

    def _contents(self) -> dict[str, Any]:
        """Return what a container holds, by its names in a state dict."""
        return {}

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yield (name, module) for the direct submodules, also those in lists and dicts.

        >>> [name for name, _ in nn.Sequential(nn.ReLU(), nn.Tanh()).named_children()]
        ['0', '1']
        """
        for name, value in self._entries().items():
            if isinstance(value, Module):
                yield name, value
            elif isinstance(value, list | tuple):
                yield from ((f"{name}.{i}", m) for i, m in enumerate(value) if isinstance(m, Module))
            elif isinstance(value, dict):
                yield from ((f"{name}.{k}", m) for k, m in value.items() if isinstance(m, Module))

    def children(self) -> Iterator[Module]:
        """Yield the direct submodules.

        >>> list(nn.Sequential(nn.ReLU(), nn.Tanh()).children())
        [ReLU(), Tanh()]
        """
        return (m for _, m in self.named_children())

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Yield (dotted name, module) for this module, named `prefix`, and all submodules, each once, parents first.

        >>> [name for name, _ in nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh())).named_modules()]
        ['', '0', '1', '1.0']
        """
        seen: set[int] = set()
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:
            name, m = stack.pop()
            if id(m) not in seen:
                seen.add(id(m))
                yield name, m
                stack.extend(reversed([(f"{name}.{k}" if name else k, c) for k, c in m.named_children()]))

    def modules(self) -> Iterator[Module]:
        """Yield this module and all submodules, each once, parents first.

        >>> [type(m).__name__ for m in nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh())).modules()]
        ['Sequential', 'ReLU', 'Sequential', 'Tanh']
        """
        return (m for _, m in self.named_modules())

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Yield (name, tensor) for the tensors that require a gradient, and for those that were frozen, each once.

        `prefix` is put before each name; without `recurse` those of submodules are left out.

        >>> [(name, p.shape) for name, p in nn.Linear(3, 2).named_parameters()]
        [('weight', (2, 3)), ('bias', (2,))]
        """
        return self._named(prefix, recurse, lambda name, t: is_parameter(t))

    def parameters(self, recurse: bool = True) -> list[Tensor]:
        """Return the tensors of `named_parameters`; without `recurse` only those of this module itself. `next` of the
        list gives the first, as `next(model.parameters()).device`.

        >>> [p.shape for p in nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1, bias=False)).parameters()]
        [(2, 3), (2,), (1, 2)]
        """
        return _Listed(t for _, t in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Yield (name, tensor) for the state that is no parameter: the attributes in `buffer_names`, each once.

        `prefix` is put before each name; without `recurse` those of submodules are left out.

        >>> [name for name, _ in nn.BatchNorm1d(3).named_buffers()]
        ['running_mean', 'running_var', 'num_batches_tracked']
        """
        buffers = {id(m.__dict__.get(name)) for m in self.modules() for name in m.buffer_names}
        return self._named(prefix, recurse, lambda name, t: id(t) in buffers)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield the tensors of `named_buffers`.

        >>> [b.shape for b in nn.BatchNorm1d(3).buffers()]
        [(3,), (3,), ()]
        """
        return (t for _, t in self.named_buffers(recurse=recurse))

    def _named(self, prefix: str, recurse: bool, wanted: Callable[[str, Tensor], bool]) -> Iterator[tuple[str, Tensor]]:
        """Yield (name, tensor) for the tensors that are `wanted`, each once; the other arguments are the callers'."""
        below = () if recurse else tuple(f"{name}." for name, _ in self.named_children())
        seen: set[int] = set()
        for name, t in all_tensors(self).items():
            if wanted(name, t) and id(t) not in seen and not name.startswith(below or "\0"):
                seen.add(id(t))
                yield f"{prefix}.{name}" if prefix else name, t

    def get_submodule(self, target: str) -> Module:
        """Return the submodule of the dotted name `target`; "" is this module. Raises ArgumentError for another name.

        >>> nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh())).get_submodule("1.0")
        Tanh()
        """
        m: Module = self
        rest = target
        while rest:
            found = [(k, c) for k, c in m.named_children() if rest == k or rest.startswith(f"{k}.")]
            if not found:
                raise ArgumentError("get_submodule", expected=f"a submodule of {type(self).__name__}", found=target)
            name, m = max(found, key=lambda pair: len(pair[0]))
            rest = rest[len(name) + 1 :]
        return m

    def get_parameter(self, target: str) -> Tensor:
        """Return the parameter of the dotted name `target`. Raises ArgumentError for another name.

        >>> nn.Sequential(nn.Linear(3, 2)).get_parameter("0.bias").shape
        (2,)
        """
        return self._get("get_parameter", target, {n: t for n, t in all_tensors(self).items() if is_parameter(t)})

    def get_buffer(self, target: str) -> Tensor:
        """Return the buffer of the dotted name `target`. Raises ArgumentError for another name.

        >>> nn.Sequential(nn.BatchNorm1d(3)).get_buffer("0.running_mean").shape
        (3,)
        """
        return self._get("get_buffer", target, dict(self.named_buffers()))

    def _get(self, method: str, target: str, tensors: dict[str, Tensor]) -> Tensor:
        if target not in tensors:
            raise ArgumentError(method, expected=f"one of {len(tensors)} names of the module", found=target)
        return tensors[target]

    def state_dict(self) -> dict[str, Tensor]:
        """Return all tensors of this module and its submodules, parameters or not, by dotted name.

        >>> list(nn.BatchNorm2d(3).state_dict())
        ['weight', 'bias', 'running_mean', 'running_var', 'num_batches_tracked']
        """
        return get_state_dict(self)

    def load_state_dict(self, state: Mapping[str, Data], strict: bool = True) -> IncompatibleKeys:
        """Copy the tensors of `state` into those of the same names; return the names that only one of both has. Raises
        as `nn.state.load_state_dict`.

        >>> a, b = nn.Linear(2, 2), nn.Linear(2, 2)
        >>> _ = b.load_state_dict(a.state_dict())
        >>> a.weight.equal(b.weight)
        True
        """
        return load_state_dict(self, state, strict=strict)

    # ---- registering -------------------------------------------------------------------------------------------------
    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Set the attribute `name` to `tensor`, state that is no parameter; unless `persistent`, a state dict leaves it
        out.

        Raises ArgumentError for a name that is an attribute of another kind, DTypeError for no Tensor.

        >>> m = nn.Module()
        >>> m.register_buffer("scale", Tensor([2.0]), persistent=False)
        >>> m.scale.tolist(), list(m.state_dict()), [name for name, _ in m.named_buffers()]
        ([2.0], [], ['scale'])
        """
        self._check_name("register_buffer", name, tensor)
        setattr(self, name, tensor)
        if name not in self.buffer_names:
            self.buffer_names = (*self.buffer_names, name)
        unsaved = tuple(n for n in self.unsaved_names if n != name)
        if unsaved != self.unsaved_names or not persistent:
            self.unsaved_names = unsaved if persistent else (*unsaved, name)

    def register_parameter(self, name: str, param: Tensor | None) -> None:
        """Set the attribute `name` to `param`. Raises as `register_buffer`.

        >>> m = nn.Module()
        >>> m.register_parameter("scale", nn.Parameter([2.0]))
        >>> len(m.parameters())
        1
        """
        self._check_name("register_parameter", name, param)
        setattr(self, name, param)

    def register_module(self, name: str, module: Module | None) -> None:
        """Set the attribute `name` to `module`.

        >>> m = nn.Module()
        >>> m.register_module("act", nn.ReLU())
        >>> m
        Module(
          (act): ReLU()
        )
        """
        if module is not None and not isinstance(module, Module):
            raise DTypeError("register_module", expected="a Module or None", found=type(module).__name__)
        self._check_name("register_module", name, None)
        setattr(self, name, module)

    add_module = register_module

    def _check_name(self, method: str, name: str, tensor: object) -> None:
        if not isinstance(name, str) or not name or "." in name or (hasattr(type(self), name) and name != "training"):
            raise ArgumentError(f"{method}: name", expected="a name that is no attribute of the class", found=name)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise DTypeError(method, expected="a Tensor or None", found=type(tensor).__name__)

    def register_forward_pre_hook(
        self, hook: Callable[..., object], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Hook:
        """Call `hook(module, args)` before each `forward`; a result other than None replaces the arguments.

        With `with_kwargs` it is `hook(module, args, kwargs)`, and a result (args, kwargs). `prepend` puts it before
        other hooks. Under `@jit` a hook runs while the step is captured. The result's `remove()` ends the calls.

        >>> m = nn.Identity()
        >>> h = m.register_forward_pre_hook(lambda module, args: args[0] * 2)
        >>> m(Tensor([1.0])).tolist(), h.remove(), m(Tensor([1.0])).tolist()
        ([2.0], None, [1.0])
        """
        return self._add_hook(True, hook, prepend, with_kwargs)

    def register_forward_hook(
        self, hook: Callable[..., object], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Hook:
        """Call `hook(module, args, output)` after each `forward`; a result other than None replaces the output.

        With `with_kwargs` it is `hook(module, args, kwargs, output)`. `prepend` puts it before other hooks. Under
        `@jit` a hook runs while the step is captured. The result's `remove()` ends the calls.

        >>> m = nn.Identity()
        >>> h = m.register_forward_hook(lambda module, args, output: output + 1)
        >>> m(Tensor([1.0])).tolist()
        [2.0]
        """
        return self._add_hook(False, hook, prepend, with_kwargs)

    def _add_hook(self, is_before: bool, function: Callable[..., Any], prepend: bool, with_kwargs: bool) -> Hook:
        if not callable(function):
            raise DTypeError("a hook", expected="a function", found=repr(function))
        hooks = self.__dict__.setdefault("_hooks", _Hooks())
        own = hooks.before if is_before else hooks.after
        hook = Hook(own, function, with_kwargs)
        own.insert(0 if prepend else len(own), hook)
        return hook

    def _hooked(self, hooks: _Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of `forward` between the calls of the hooks."""
        for hook in tuple(hooks.before):
            new = hook.function(self, args, kwargs) if hook.with_kwargs else hook.function(self, args)
            if new is not None and hook.with_kwargs:
                args, kwargs = new
            elif new is not None:
                args = new if isinstance(new, tuple) else (new,)
        out = self.forward(*args, **kwargs)
        for hook in tuple(hooks.after):
            new = hook.function(self, args, kwargs, out) if hook.with_kwargs else hook.function(self, args, out)
            out = out if new is None else new
        return out

    # ---- changing it -------------------------------------------------------------------------------------------------
    def train(self, mode: bool = True) -> Self:
        """Set `training` to `mode` here and in all submodules, for dropout and batch statistics; return this module.

        >>> model = nn.Sequential(nn.Dropout(0.5)).eval()
        >>> model.train()[0].training
        True
        """
        for m in self.modules():
            m.training = mode
        return self

    def eval(self) -> Self:
        """Set `training` to False here and in all submodules; return this module.

        >>> nn.Sequential(nn.Dropout(0.5)).eval()[0].training
        False
        """
        return self.train(False)

    def apply(self, fn: Callable[[Module], object]) -> Self:
        """Call `fn` with each submodule, children first, and with this module; return this module.

        >>> def freeze(m):
        ...     if isinstance(m, nn.Linear):
        ...         m.weight.requires_grad_(False)
        >>> [p.requires_grad for p in nn.Sequential(nn.Linear(2, 2), nn.ReLU()).apply(freeze).parameters()]
        [False, True]
        """
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def to(
        self,
        *args: DeviceLike | DTypeLike | Tensor,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        non_blocking: bool = False,
    ) -> Self:
        """Move the tensors of this module to `device` and its float tensors to the float `dtype`; return this module.

        The arguments are a device, a dtype, both, or a Tensor that has both. Tensors stay the same objects; gradients
        are dropped. `non_blocking` has no effect. Raises DTypeError for another dtype, ArgumentError for other
        arguments.

        >>> nn.Linear(2, 1).to("float16").weight.dtype
        dtypes.float16
        """
        for arg in args:
            if isinstance(arg, Tensor):
                device, dtype = arg.device, arg.dtype
            elif isinstance(arg, DType) or (isinstance(arg, str) and hasattr(dtypes, arg)) or isinstance(arg, type):
                dtype = arg
            else:
                device = arg
        d = None if dtype is None else as_dtype(dtype)
        if d is not None and not d.is_float:
            raise DTypeError("Module.to: dtype", expected="a float dtype", found=d.name)
        where = None if device is None else as_device(device)

        def changed(t: Tensor) -> Tensor:
            t = t.detach()
            t = t if where is None or t.device == where else t.to(where)
            return t.cast(d) if d is not None and t.dtype.is_float else t

        return self._replaced(changed)

    def _replaced(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Give each tensor of this module the value of `change(tensor)`, in one batch; return this module."""
        tensors = list({id(t): t for t in all_tensors(self).values()}.values())
        news = [change(t) for t in tensors]
        if news:
            news[0].realize(*news[1:])
        for t, new in zip(tensors, news, strict=True):
            if t.dtype is not new.dtype or t.device != new.device:
                t.grad = None
                t.uop = new.uop
        return self

    def float(self) -> Self:
        """Make the float tensors of this module float32; return this module.

        >>> nn.Linear(2, 1).double().float().weight.dtype
        dtypes.float32
        """
        return self.to(dtypes.float32)

    def double(self) -> Self:
        """Make the float tensors of this module float64; return this module.

        >>> nn.Linear(2, 1).double().weight.dtype
        dtypes.float64
        """
        return self.to(dtypes.float64)

    def half(self) -> Self:
        """Make the float tensors of this module float16; return this module.

        >>> nn.Linear(2, 1).half().weight.dtype
        dtypes.float16
        """
        return self.to(dtypes.float16)

    def bfloat16(self) -> Self:
        """Make the float tensors of this module bfloat16; return this module.

        >>> nn.Linear(2, 1).bfloat16().weight.dtype
        dtypes.bfloat16
        """
        return self.to(dtypes.bfloat16)

    def cpu(self) -> Self:
        """Move the tensors of this module to the device `cpu`; return this module.

        >>> nn.Linear(2, 1).cpu().weight.device
        'cpu'
        """
        return self.to("cpu")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients of all parameters to None, or without `set_to_none` those that exist to 0.

        >>> model = nn.Linear(1, 1)
        >>> _ = model(Tensor.ones(1, 1)).sum().backward()
        >>> model.zero_grad()
        >>> model.weight.grad is None
        True
        """
        for p in self.parameters():
            p.grad = None if set_to_none or p.grad is None else p.grad.zeros_like()

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Freeze the parameters of this module (False), or unfreeze them (True); return this module.

        >>> m = nn.BatchNorm1d(2).requires_grad_(False)
        >>> [p.requires_grad for p in m.parameters()], [p.requires_grad for p in m.requires_grad_().parameters()]
        ([False, False], [True, True])
        """
        for p in self.parameters():
            p.requires_grad = requires_grad
        return self

    def realize(self) -> Self:
        """Compute all tensors of this module, such as initial weights, in one batch; return this module.

        >>> nn.LayerNorm(2).realize().weight
        Tensor([1., 1.], requires_grad=True)
        """
        tensors = list(all_tensors(self).values())
        if tensors:
            tensors[0].realize(*tensors[1:])
        return self

    def summary(self) -> str:
        """Return a table of the submodules: name, class, shapes and number of the parameters of each itself.

        >>> print(nn.Sequential(nn.Linear(3, 2), nn.ReLU()).summary())
        name  module      parameters  shapes
              Sequential           0
        0     Linear               8  weight (2, 3), bias (2,)
        1     ReLU                 0
        total                      8
        """
        rows = [("name", "module", "parameters", "shapes")]
        for name, m in self.named_modules():
            own = dict(m.named_parameters(recurse=False))
            shapes = ", ".join(f"{k} {t.shape}" for k, t in own.items())
            rows.append((name, type(m).__name__, str(sum(prod(t.shape) for t in own.values())), shapes))
        rows.append(("total", "", str(sum(prod(t.shape) for t in self.parameters())), ""))
        wide = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = [f"{a:<{wide[0]}}  {b:<{wide[1]}}  {c:>{wide[2]}}  {d}" for a, b, c, d in rows]
        return "\n".join(line.rstrip() for line in lines)

    def _parts(self) -> Iterator[tuple[str, str]]:
        """Yield (name, repr) of each submodule, for the repr of this module."""
        return ((name, repr(m)) for name, m in self.named_children())

    def extra_repr(self) -> str:
        """Return the text between the parentheses of this module's repr, "" unless a subclass has settings to show.

        >>> nn.Linear(3, 2).extra_repr(), nn.Linear(3, 2)
        ('3, 2, bias=True', Linear(3, 2, bias=True))
        """
        return ""

    def __repr__(self) -> str:
        lines = [f"({name}): " + text.replace("\n", "\n  ") for name, text in self._parts()]
        extra = self.extra_repr()
        if not lines:
            return f"{type(self).__name__}({extra})"
        return "\n".join([f"{type(self).__name__}({extra}", *(f"  {line}" for line in lines), ")"])


mark_absent(Module, "Module")

__all__ = ["Hook", "Module", "Parameter"]
