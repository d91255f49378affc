"""Dependencies of a Python function other than the values of Tensors: all that it can reach, and whether that changed.

What it is for: `@function` traces once, and `@jit` captures once, for each `key`; so the key must hold whatever may
steer the function: numbers and texts, what lists and dicts hold, which Tensors stand where. One walk goes through
arguments, closures, defaults and globals, and through objects, classes and modules by the attributes that the code
names (of layers and optimizers by all, but for plain values that no code names). Constructors are read only where the
code may make an object. The walk notes the places it looked at (`places`), so that these can be looked at again.
What it is not: a proof. Code of other libraries is not read, but for that of the package of the function itself; nor is
what an object in C holds that has no bytes to show, such as a file.
Invariant: equal keys mean equal values at the same places; `is_complete` is False when something was met that can
change without the key changing.
"""

from __future__ import annotations

import enum
import functools
import io
import os
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from contextvars import ContextVar
from itertools import chain
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple

from monolect.base.disk.hashing import blake2b
from monolect.base.dtype import DType
from monolect.base.numpy import is_array, is_scalar
from monolect.capture.environment import nondeterminism as drawn
from monolect.capture.environment.bytecode import ABSENT, ANY, names_in, names_of_module
from monolect.capture.environment.guards import EMPTY, Current, Elements, Places, Subclasses, content, is_plain
from monolect.ir.uop import UOp
from monolect.tensor.base import TensorBase
from monolect.tensor.tree import PLAIN, Same, bytes_of, content_of, fields, plain

_OURS = __name__.partition(".")[0]
_CODE = (types.FunctionType, property, staticmethod, classmethod, functools.cached_property)
_OF_LIBRARIES = (types.FunctionType, types.BuiltinMethodType, type(os.environ), list)  # and values: of their modules
# containers whose `data` holds references
_WEAKLY: Any = (weakref.WeakValueDictionary, weakref.WeakKeyDictionary, weakref.WeakSet)
Parts = Iterator[tuple[Any, str]]  # values, each with a name for it
_MAKERS = frozenset(("__new__", "__init__", "__post_init__"))  # methods that only who makes an object calls
# they take names as texts, or tell all names
_READERS = tuple(map(id, (getattr, hasattr, vars, dir, eval, exec, attrgetter, methodcaller)))


class _Bases(NamedTuple):
    """The class that `super()` without arguments starts from: its methods are called, and no object of it is made."""

    of: type


class Reach(Places):
    """What is reached from `roots`: Tensors by what they are (`by_kind`: the same node twice is told), or by identity.

    `named` are attributes that count; those that code on the way names are added. `tensors`: each object once;
    `nodes`: their distinct nodes.
    """

    def __init__(self, roots: Iterable[Any], named: frozenset[str] = frozenset(), by_kind: bool = False) -> None:
        self.roots, self.named, self.by_kind = list(roots), named, by_kind
        self._homes = {_package(r) for r in self.roots}  # their code is read, wherever it is installed
        self._weakly = {id(r) for r in self.roots}  # what is not to be kept alive
        while not self._walked():
            pass
        del self._seen, self._alive, self._classes, self.roots
        self.key = tuple(self._key)

    def changed(self, now: Reach) -> str | None:
        """The name of the first value that is another one in `now`, a later walk; None where the keys are equal."""
        if self.key == now.key:
            return None
        names = now._names if len(now.key) >= len(self.key) else self._names
        differ = (name for name, old, new in zip(names, self.key, now.key, strict=False) if old != new)
        return next(differ, names[-1])

    def _walked(self) -> bool:
        """One walk; False if it met names that it should have known from its beginning."""
        super().__init__()
        self.tensors: list[Any] = []
        self.nodes: dict[UOp, int] = {}
        self.is_complete = True
        self.passing: list[str] = []  # names of iterators: to look at one changes it
        self.generators: dict[str, Any] = {}  # of random numbers, by name
        self.asks = False  # may what another call would be told otherwise be asked for?
        self._met: set[str] = set()
        self._key: list[Any] = []
        self._names: list[str] = []  # of each part of the key, as the user knows it
        self._seen: dict[int, int] = {}  # by identity: where in the walk an object was met first
        self._alive: list[Any] = []  # no identity is used twice during the walk
        self._classes: set[type] = set()
        stack = [(x, "a variable") for x in reversed(self.roots)]
        while stack:
            x, name = stack.pop()
            if x.__class__ in PLAIN:
                self._key.append(plain(x))
            elif isinstance(x, TensorBase):
                self._tensor(x)
                if x._is_view:
                    stack.append((x._view.parent, name))
                if type(x).__dictoffset__:  # of a class of its own
                    own: Any = own_of(x)
                    self.sizes.append((own, len(own)))
                    stack.extend(self._attributes(own))
                    stack.append((x._kind, name))
            elif (number := self._seen.get(id(x))) is not None:
                self._key.append(("again", number))
            else:
                self._seen[id(x)] = len(self._seen)
                self._alive.append(x)
                stack.extend(reversed(list(self._inside(x, name))))
            self._names += [name] * (len(self._key) - len(self._names))
        known, self.named = self.named, self.named | self._met
        return known == self.named

    # ---- what stands in an object ------------------------------------------------------------------------------------
    def _tensor(self, t: Any) -> None:
        if id(t) not in self._seen:
            self._seen[id(t)] = len(self._seen)
            if not t._is_view:  # a view follows its base
                self.tensors.append(t)
            self.flags.append((t, t._requires_grad))
        if self.by_kind and not t._is_view:
            u = t._uop
            number = self.nodes.setdefault(u, len(self.nodes))
            self._key.append((number, self._seen[id(t)], u.shape, u.dtype, t.device, t._requires_grad))
        else:
            self._key.append((Same(t), t._requires_grad))

    def _inside(self, x: Any, name: str) -> Parts:
        """What stands in `x`; what can be told of `x` itself goes into the key."""
        if id(x) in _READERS:  # under another name, or handed on: it may be told any name
            self._met |= {ANY, "__dict__"}
        if isinstance(x, _Bases):
            return self._namespace(x.of, makes=False)
        if isinstance(x, types.FunctionType):
            return self._function(x)
        if isinstance(x, types.MethodType):
            return _parts(name, x.__func__, x.__self__)
        if isinstance(x, functools.partial):
            return chain(_parts(name, x.func, x.args, x.keywords), self._attributes(vars(x)))
        if isinstance(x, types.BuiltinMethodType):
            self.asks |= drawn.differs_each_time(x)
            self._key.append((type(x), x.__name__))
            return _parts(name, x.__self__)
        if isinstance(x, attrgetter | methodcaller):
            parts = x.__reduce__()[1]
            self._met.update(k for part in parts if isinstance(part, str) for k in part.split("."))
            return _parts(name, *parts)
        if isinstance(x, ContextVar):
            self._key.append(x)
            value = x.get(EMPTY)
            self.entries.append((Current(x), x.name, value))
            return _parts(name, value)
        if isinstance(x, weakref.ref):
            target = x()
            self._weakly.add(id(target))
            self.deaths.append((x, target is None))
            return _parts(name, target)
        if type(x) in weakref.ProxyTypes:
            return _parts(name, x.__dir__.__self__)  # which every object has
        if isinstance(x, _WEAKLY):
            return _parts(name, x.data)
        if isinstance(x, slice):
            self._key.append(slice)
            return _parts(name, x.start, x.stop, x.step)
        is_container = isinstance(x, Mapping | Sequence | Set | deque)
        if is_container and own_of(x) is not None:  # of a class of its own, with attributes
            content = self._dict(x, name) if isinstance(x, dict) else self._container(x, name)
            return chain(content, self._object(x, name))
        if isinstance(x, dict):
            return self._dict(x, name)
        if x is os.environ:
            return self._dict(vars(x)["_data"], name)
        if isinstance(x, types.ModuleType | type):
            return self._namespace(x)
        if isinstance(x, enum.Enum):
            self._key.append(plain(x))
            return chain(_parts(name, x._value_), self._object(x, name))
        if isinstance(x, bytes | range | DType | UOp) or is_scalar(x):
            self._key.append(plain(x))
            return iter(())
        if not self._is_users(type(x).__module__) and _is_wrapper(x):  # as a jitted function, which becomes a part
            inside = _parts(name, x.__wrapped__, getattr(x, "__self__", None), getattr(x, "gradient", None))
            return inside if _is_ours(type(x).__module__) else chain(inside, self._attributes(own_of(x) or {}))
        if is_container:
            return self._container(x, name)
        if is_array(x) and x.dtype.hasobject:
            self._key.append(x.shape)
            return self._container(Elements(x), name)
        return self._object(x, name)

    def _dict(self, x: dict, name: str) -> Parts:
        self._key.append((type(x), len(x)))
        self.orders.append((x, [*x]))
        for k, v in list(x.items()):
            self.entries.append((x, k, v))
            yield k, name
            yield v, k if isinstance(k, str) else name

    def _container(self, x: Any, name: str) -> Parts:
        held = ValuesView(x) if isinstance(x, Mapping) else x
        values = tuple(held)
        self._key.append((type(x), len(values)))
        if x.__class__ not in (tuple, frozenset):
            self.contents.append((held, values))
        if isinstance(x, Mapping):
            yield tuple(x), name
        for v in values:
            yield v, name

    def _function(self, f: types.FunctionType) -> Parts:
        """Its code, and all that it reads from where it was made."""
        self._key.append(f.__code__)
        if not self._is_users(f.__globals__.get("__name__")):
            for name in ("__wrapped__", "registry"):  # decorators of libraries; `singledispatch`
                yield f.__dict__.get(name), f.__name__
            if f is os.getenv:
                yield os.environ, f.__name__
            if not _is_ours(f.__globals__.get("__name__")):  # it may make an object, as `dataclasses.replace` does
                self._met.add("__class__")
            return
        attributes, variables, modules = names_in(f.__code__)
        self._met.update(attributes)
        self.asks |= not drawn.ASKED.isdisjoint(attributes) or not drawn.ASKED.isdisjoint(variables)
        self.codes.append((f, f.__code__))
        yield from self._attributes(f.__dict__)
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=False):
            self.cells.append((cell, value := content(cell)))
            is_super = name == "__class__" and name not in attributes and isinstance(value, type)
            yield _Bases(value) if is_super else value, name
        for name in ("__defaults__", "__kwdefaults__"):
            if (value := getattr(f, name)) is not None:
                self.slots.append((lambda: f, name, value))
                yield value, f.__name__
        for name in variables:
            value = f.__globals__.get(name, EMPTY)
            if value is EMPTY:
                yield EMPTY, name
            if value is type:
                self._met.add("__class__")
            elif id(value) in _READERS and name != value.__name__:
                self._met |= {ANY, "__dict__"}
            if value is EMPTY or not isinstance(value, type | types.ModuleType) or self._is_users(_module_of(value)):
                yield from self._entry(f.__globals__, name)
            elif isinstance(value, types.ModuleType) and not _is_ours(value.__name__):
                yield value, name
        for m in modules:
            depth = len(m) - len(m.lstrip("."))
            home = (f.__globals__.get("__package__") or "").rsplit(".", depth - 1)[0] if depth else ""
            m = ".".join(filter(None, (home, m[depth:])))
            if not _is_ours(m):
                yield from self._entry(sys.modules, m)

    def _attributes(self, own: dict[str, Any]) -> Parts:
        """Those of a function that the code names; all of them where it may name any."""
        self._whole(own)
        for name in sorted(own if self._reads_all() else self.named.intersection(own)):
            yield name, name
            yield from self._entry(own, name)

    def _reads_all(self) -> bool:
        """Whether the code may read attributes that it does not name."""
        return not self.named.isdisjoint((ANY, "__dict__"))

    def _whole(self, own: Any) -> None:
        """Looks for attributes that come where none was, if those may change what the code does."""
        if ABSENT in self.named or self._reads_all():
            self.orders.append((own, [*own]))

    def _entry(self, mapping: Any, name: str, known_as: str = "") -> Parts:
        """What is there under a name; `known_as`: its name for the user, where that is another one."""
        value = mapping.get(name, EMPTY)
        self.entries.append((mapping, name, value))
        if isinstance(value, classmethod):  # it is given a class, of which it may make an object
            self._met.add("__class__")
        if value is not EMPTY:
            yield from ((part, known_as or name) for part in _functions(value))

    def _namespace(self, x: Any, makes: bool = True) -> Parts:
        """A class or a module: what the code names of it; of a library's, no more than values and functions. `makes`:
        the code may make an object of the class.
        """
        self._key.append(x)
        if x is type:
            self._met.add("__class__")
        if x.__name__ in drawn.MODULES:
            yield drawn.generator_of(x.__name__, self.named), x.__name__
        kinds: list[Any] = [*x.__mro__, *type(x).mro(type(x))] if isinstance(x, type) else [x]
        for c in kinds:
            if self._is_users(_module_of(c)):
                self._class(c)
                self._whole(vars(c))
                for name in sorted(k for k, v in vars(c).items() if self._counts(k, v, makes)):
                    yield name, name
                    yield from self._entry(vars(c), name)
            elif isinstance(c, types.ModuleType):
                for name in sorted(self.named.intersection(vars(c))):
                    if vars(c)[name].__class__ in PLAIN or isinstance(vars(c)[name], _OF_LIBRARIES):
                        yield name, name
                        yield from self._entry(vars(c), name)
        if "__subclasses__" in self.named and isinstance(x, type):
            yield from self._derived(x)

    def _derived(self, c: type) -> Parts:
        """The classes that are derived from one of the user's, or of ours."""
        if self._is_users(c.__module__) or _is_ours(c.__module__):
            found = Subclasses(c)
            self.contents.append((found, values := tuple(found)))
            yield values, c.__name__

    def _class(self, c: Any) -> None:
        """Looks for what comes to stand in a class of the user's, before what it inherits, and at its bases."""
        if c in self._classes or not isinstance(c, type):
            return
        self._classes.add(c)
        self.sizes.append((vars(c), len(vars(c))))
        if any(self._is_users(b.__module__) for b in c.__bases__):  # another base has another layout
            self.slots.append((lambda: c, "__bases__", c.__bases__))

    def _object(self, x: Any, name: str) -> Parts:
        kinds = type(x).__mro__
        if drawn.is_generator(x):
            self.generators[name] = x
            self.is_complete = False
            self._key.append(Same(x))
            return
        own = own_of(x)
        users = [c for c in kinds if c is not object and self._is_users(c.__module__)]
        of_ours = [c for c in kinds if _is_ours(c.__module__)]
        if not users and (own is None or bytes_of(x) is not None):
            self._unknown(x, name)
            return
        has_value = not users and not of_ours and type(x).__hash__ not in (None, object.__hash__)
        self._key.append((type(x), x if has_value else _number(x)))
        for c in users:
            self._class(c)
        if id(x) in self._weakly:
            self.slots.append((_reference(x), "__class__", x.__class__))
        else:
            self.kinds.append((x, type(x)))
        inherited = {
            name: c
            for c in reversed(users)
            for name, v in vars(c).items()
            if self._counts(name, v, makes=False) or (name not in _MAKERS and any(name in vars(o) for o in of_ours))
        }
        if own is not None:
            if of_ours:  # whose code is not read: every attribute counts
                self.sizes.append((own, len(own)))
            every = of_ours or "__dict__" in self.named or fields(x) is not None
            found = set(own if every else self.named.intersection(own))
            if not users and type(x).__module__ in sys.stdlib_module_names:  # whose code is not read either
                found.update(k for k, v in own.items() if v.__class__ in PLAIN)
            if not of_ours:
                self._whole(own)
                if not users or hasattr(type(x), "__getattr__"):
                    self.sizes.append((own, len(own)))  # attributes of any name may come
            if of_ours:  # such as `training`, which may come to stand in the object
                found.update(k for c in of_ours for k, v in vars(c).items() if v.__class__ in PLAIN and k[0] != "_")
                found.difference_update(
                    k for k in getattr(type(x), "unread", ()) if self.named.isdisjoint((k, k.lstrip("_")))
                )
            inside = _names_inside(frozenset(c.__module__ for c in of_ours))
            if users and inside:  # no code reads the others, unless it looks for tensors in all of them
                unread = {k for k in found - self.named - inside if k in own and is_plain(own[k])}
                if "__dict__" not in self.named:
                    found -= unread
                    self.plains.extend((own, k) for k in sorted(unread))
            for k in (names := sorted(found)):
                known_as = name if k[0] == "_" and (not users or k in inside) else k
                yield k, known_as
                yield from self._entry(own, k, known_as)
                if k not in own:
                    yield getattr(type(x), k, EMPTY), known_as
            yield None, name  # no more of them
            if not of_ours:  # where every attribute counts, and how many they are, none comes unseen
                absent = {name[1:] for name in self.named if name[0] == "?" and name != ABSENT}
                for k in absent.union(inherited.keys() & self.named).difference(own, names):
                    self.entries.append((own, k, EMPTY))
        for name, c in sorted(inherited.items(), key=lambda item: item[0]):
            yield name, name
            if isinstance(vars(c)[name], types.MemberDescriptorType):
                if name != "__dict__":
                    self.slots.append((_reference(x), name, getattr(x, name, EMPTY)))
                    yield getattr(x, name, EMPTY), name
            else:
                yield from self._entry(vars(c), name)

    def _unknown(self, x: Any, name: str) -> None:
        """A value of a class that is not known here: equal values are taken to be the same, if they cannot change."""
        if isinstance(x, Iterator) and not isinstance(x, io.IOBase):
            self.passing.append(name)
            self.is_complete = False
        if (data := bytes_of(x)) is not None:
            self.arrays.append((x, content := content_of(x)))
            self._key.append((type(x), *map(str, content[1:]), blake2b(data, digest_size=20).digest()))
            return
        try:
            hash(x)
        except TypeError:
            self.is_complete = False
            self._key.append(Same(x))
            return
        if type(x).__eq__ is object.__eq__ and not callable(x):  # nothing says that it stays what it is
            self.is_complete = False
        self._key.append((type(x), x))

    def _counts(self, name: str, value: Any, makes: bool = True) -> bool:
        """Whether an attribute of a class or a module of the user's is looked at."""
        any_value = (ANY in self.named or self._is_data(value)) and name[:2] != "__"
        called = _is_called(name, value) and (makes or name not in _MAKERS or "__class__" in self.named)
        return name in self.named or called or any_value

    def _is_data(self, value: Any) -> bool:
        """Whether the code may read `value` in the dict of a class or a module, where it is no code."""
        return "__dict__" in self.named and not isinstance(value, (*_CODE, type, types.ModuleType))

    def _is_users(self, module: str | None) -> bool:
        return _is_users(module) or _top(module) in self._homes


def _parts(name: str, *parts: Any) -> Parts:
    return ((part, name) for part in parts)


def _functions(value: Any) -> tuple[Any, ...]:
    """What is to be looked at of an attribute of a class: behind descriptors, the functions."""
    if isinstance(value, property):
        return value.fget, value.fset
    if isinstance(value, staticmethod | classmethod):
        return (value.__func__,)
    if isinstance(value, functools.partialmethod):
        return value.func, value.args, value.keywords
    if isinstance(value, functools.singledispatchmethod):
        return (value.dispatcher,)
    return (value.func,) if isinstance(value, functools.cached_property) else (value,)


def _is_called(name: str, value: Any) -> bool:
    """Whether Python itself may call this function of a class."""
    return name[:2] == name[-2:] == "__" and isinstance(value, _CODE)


@functools.cache
def _names_inside(modules: frozenset[str]) -> frozenset[str]:
    """The names in the code of these modules of this package, which reads attributes of layers and optimizers; none
    where that code is not at hand.
    """
    names = [names_of_module(m) for m in (modules and (*modules, "monolect.nn.state"))]
    return frozenset().union(*names) if all(names) else frozenset()


def own_of(x: Any) -> dict[str, Any] | None:
    """The attributes that stand in `x` itself; no code of the user's is run for it, such as `__getattr__`."""
    get: Any = type(x).__getattribute__
    try:
        found: Any = (object.__getattribute__ if isinstance(get, types.FunctionType) else get)(x, "__dict__")
    except AttributeError:
        return None
    return found


def _is_wrapper(x: Any) -> bool:
    """Whether `x` says what it was made of, as decorators leave it."""
    if "__wrapped__" in (own_of(x) or ()) or isinstance(x, staticmethod | classmethod):
        return True
    return _is_ours(type(x).__module__) and hasattr(x, "__wrapped__")


def _number(x: Any) -> Any:
    """The value of what is a number, of a class of its own."""
    return repr(float(x)) if isinstance(x, float) else int(x) if isinstance(x, int) else None


@functools.lru_cache(256)
def has_code(kind: type, named: frozenset[str]) -> bool:
    """Whether a class of the user's has attributes of these names, or functions that Python calls by itself; but for
    what dataclasses and named tuples make, from texts.
    """
    users = [c for c in kind.__mro__ if _is_users(c.__module__)]
    found = [(k, v) for c in users for k, v in vars(c).items() if k in named or _is_called(k, v)]
    return any(not isinstance(v, types.FunctionType) or v.__code__.co_filename[0] != "<" for _, v in found)


def _package(root: Any) -> str:
    """The package that a function, or an object's class, is from; none for those of Python and ours."""
    f = getattr(root, "__func__", root)
    if isinstance(f, types.FunctionType):
        module = f.__globals__.get("__name__")
    else:
        module = (f if isinstance(f, type) else type(f)).__module__
    top = _top(module)
    return "" if top in sys.stdlib_module_names or top == _OURS else top


def _top(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _reference(x: Any) -> Callable[[], Any]:
    """`x`, weakly where it allows that."""
    try:
        return weakref.ref(x)
    except TypeError:
        return lambda: x


def _module_of(x: Any) -> str | None:
    return x.__name__ if isinstance(x, types.ModuleType) else x.__module__


def _is_ours(module: str | None) -> bool:
    return _top(module) == _OURS


@functools.cache
def _is_users(module: str | None) -> bool:
    """Whether code of a module is read: that of Python, of this package and of installed libraries is not."""
    top = _top(module)
    if top in sys.stdlib_module_names or top == _OURS:
        return False
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return "site-packages" not in file and "dist-packages" not in file


__all__ = ["Reach", "has_code", "own_of"]
