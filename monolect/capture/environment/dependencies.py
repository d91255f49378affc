"""Find everything that a Python function depends on besides the values of Tensors, and detect changes of it.

What it is for: `@function` traces once, and `@jit` captures once, for each `key`. So the key must hold whatever may
change the course of the function: numbers and strings, the items of lists and dicts, the positions of Tensors. One walk
follows arguments, closures, defaults and globals, and the attributes of objects, classes and modules that the code
names. (Of layers and optimizers it follows all attributes, except plain values that no code names.) Constructors are
read only if the code may make an object. The walk notes a guard for each location that it read: the location and the
value found there.
What it is not: a proof. Code of other libraries is not read, except that of the function's own package. Of an object of
a C type without a buffer of bytes, such as a file, only attributes with plain values are read.
Invariant: equal keys mean equal values at the same locations. `is_complete` is False if the walk met a value that can
change while the key does not.
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
from queue import SimpleQueue
from typing import Any, NamedTuple

from monolect.base.disk.hashing import blake2b
from monolect.base.dtype import DType
from monolect.base.numpy import is_array, is_scalar, np
from monolect.capture.environment import nondeterminism
from monolect.capture.environment.bytecode import ABSENT, ANY, names_in, names_of_module
from monolect.capture.environment.guards import (
    EMPTY,
    ArrayElements,
    ContextValue,
    Guards,
    NativeAttributes,
    QueueSize,
    SubclassList,
    cell_content,
    is_fixed,
    is_plain,
)
from monolect.ir.uop import UOp
from monolect.tensor.base import TensorBase, guarded
from monolect.tensor.state.hooks import functions_of
from monolect.tensor.tree import PLAIN, ByIdentity, bytes_of, content_of, fields, plain
from monolect.tensor.view import axes_in_place

_PACKAGE = __name__.partition(".")[0]
_CODE_TYPES = (types.FunctionType, property, staticmethod, classmethod, functools.cached_property)
# attributes of library modules that are followed, with plain values
_LIBRARY_VALUES = (types.FunctionType, types.BuiltinMethodType, type(os.environ), list)
# containers whose `data` holds weak references
_WEAK_CONTAINERS: Any = (weakref.WeakValueDictionary, weakref.WeakKeyDictionary, weakref.WeakSet)
Parts = Iterator[tuple[Any, str]]  # (value, its name for error messages)
_CONSTRUCTORS = frozenset(("__new__", "__init__", "__post_init__"))  # methods that run only when an object is made
_STEERING = frozenset(("maxlen", "default_factory"))  # attributes in C that methods of containers read
_QUEUES = frozenset((("queue", "Queue"), ("asyncio.queues", "Queue")))  # (module, class): the library reads their items
# ids of functions that take names of attributes as texts, or list all names
_REFLECTION = tuple(map(id, (getattr, hasattr, vars, dir, eval, exec, attrgetter, methodcaller)))


class _SuperOf(NamedTuple):
    """The class `of` from which `super()` without arguments starts: the code calls methods of this class, but makes no
    object of it.
    The walk yields it instead of the class, so that constructors are not followed.
    """

    of: type


class Dependencies(Guards):
    """Everything that can be reached from the objects `roots`, as a hashable `key` and as guards.

    With `by_kind` Tensors count in the key by shape, dtype, device and leaf flag, and by which of them share a node;
    else by identity. `attributes`: names of attributes to follow; names that code on the way uses are added. `tensors`:
    each Tensor once, without views. `nodes`: a number for each distinct node of these and, with `by_kind`, of views
    that are leaves.
    """

    def __init__(self, roots: Iterable[Any], attributes: frozenset[str] = frozenset(), by_kind: bool = False) -> None:
        self.roots, self.attributes, self.by_kind = list(roots), attributes, by_kind
        self._root_packages = {_package(r) for r in self.roots}  # packages whose code is read even if installed
        self._weakly = {id(r) for r in self.roots}  # ids of objects that guards hold weakly
        while not self._walk():
            pass
        del self._numbers, self._alive, self._classes, self.roots
        self.key = tuple(self._key)

    def changed(self, now: Dependencies) -> str | None:
        """Return the user's name of the first value that differs in `now`, the Dependencies of a later walk; None if
        the keys are equal.
        """
        if self.key == now.key:
            return None
        names = now._names if len(now.key) >= len(self.key) else self._names
        differ = (name for name, old, new in zip(names, self.key, now.key, strict=False) if old != new)
        return next(differ, names[-1])

    def _walk(self) -> bool:
        """Walk from the roots and collect the key and the guards.

        Return False if code on the way named attributes that were not in `attributes` at the start, so that another
        walk is needed.
        """
        super().__init__()
        self.tensors: list[Any] = []
        self.nodes: dict[UOp, int] = {}
        self.is_complete = True
        self.iterators: list[str] = []  # names of iterators: reading one advances it
        self.generators: dict[str, Any] = {}  # random generators, by name
        self.needs_watch = False  # may code read a clock or entropy?
        self._new_names: set[str] = set()
        self._key: list[Any] = []
        self._names: list[str] = []  # user's name of each part of the key
        self._numbers: dict[int, int] = {}  # order in which the walk met each object, by id
        self._alive: list[Any] = []  # keeps objects alive, so that no id is reused during the walk
        self._classes: set[type] = set()
        stack = [(x, "a variable") for x in reversed(self.roots)]
        while stack:
            x, name = stack.pop()
            if x.__class__ in PLAIN:
                self._key.append(plain(x))
            elif isinstance(x, TensorBase):
                self._tensor(x)
                stack.extend((f, name) for f in functions_of(x))
                if x._is_view:
                    stack.append((x._view.parent, name))
                if type(x).__dictoffset__:  # an instance of a subclass
                    own: Any = attributes_of(x)
                    self.sizes.append((own, len(own)))
                    stack.extend(self._attributes(own))
                    stack.append((x._kind, name))
            elif (number := self._numbers.get(id(x))) is not None:
                self._key.append(("again", number))
            else:
                self._numbers[id(x)] = len(self._numbers)
                self._alive.append(x)
                stack.extend(reversed([*self._inside(x, name), *self._native_attributes(x)]))
            self._names += [name] * (len(self._key) - len(self._names))
        if self.flags:
            self.entries.append((guarded, "last", guarded["last"]))
        known, self.attributes = self.attributes, self.attributes | self._new_names
        return known == self.attributes

    # ---- parts of an object ------------------------------------------------------------------------------------------
    def _tensor(self, t: Any) -> None:
        """Append the Tensor `t` to the key, guard its leaf flag (requires_grad), and record it in `tensors` and its
        node in `nodes`.
        """
        if id(t) not in self._numbers:
            self._numbers[id(t)] = len(self._numbers)
            if not t._is_view:  # a view follows its base
                self.tensors.append(t)
            self.flags.append((t, t._requires_grad))
            t._is_guarded = True
        if self.by_kind and not t._is_view:
            u = t._uop
            number = self.nodes.setdefault(u, len(self.nodes))
            self._key.append((number, self._numbers[id(t)], u.shape, u.dtype, t.device, t._requires_grad))
        else:
            self._key.append((ByIdentity(t), t._requires_grad, axes_in_place(t)))
            if self.by_kind and t._requires_grad:  # a leaf has a node that its base does not lead to
                self._key.append(self.nodes.setdefault(t._uop, len(self.nodes)))

    def _inside(self, x: Any, name: str) -> Parts:
        """Append to the key the part that identifies the object `x`, and return the objects that `x` refers to, as
        (object, name) pairs.

        `name`: the user's name of `x`, for messages.
        """
        if id(x) in _REFLECTION:  # used under another name, it may get any name
            self._new_names |= {ANY, "__dict__"}
        if isinstance(x, _SuperOf):
            return self._namespace(x.of, may_construct=False)
        if isinstance(x, types.FunctionType):
            return self._function(x)
        if isinstance(x, types.MethodType):
            return _named_parts(name, x.__func__, x.__self__)
        if isinstance(x, functools.partial):
            return chain(_named_parts(name, x.func, x.args, x.keywords), self._attributes(vars(x)))
        if isinstance(x, types.BuiltinMethodType):
            self.needs_watch |= nondeterminism.is_nondeterministic(x)
            self._key.append((type(x), x.__name__))
            return _named_parts(name, x.__self__)
        if isinstance(x, attrgetter | methodcaller):
            parts = x.__reduce__()[1]
            self._new_names.update(k for part in parts if isinstance(part, str) for k in part.split("."))
            return _named_parts(name, *parts)
        if isinstance(x, ContextVar):
            self._key.append(x)
            value = x.get(EMPTY)
            self.entries.append((ContextValue(x), x.name, value))
            return _named_parts(name, value)
        if isinstance(x, weakref.ref):
            target = x()
            self._weakly.add(id(target))
            self.weak_references.append((x, target is None))
            return _named_parts(name, target)
        if type(x) in weakref.ProxyTypes:
            return _named_parts(name, x.__dir__.__self__)  # the referent: `__dir__` is a method of every object
        if isinstance(x, _WEAK_CONTAINERS):
            return _named_parts(name, x.data)
        if isinstance(x, slice):
            self._key.append(slice)
            return _named_parts(name, x.start, x.stop, x.step)
        is_container = isinstance(x, Mapping | Sequence | Set | deque)
        if is_container and attributes_of(x) is not None:  # an instance of a subclass that has attributes
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
            return chain(_named_parts(name, x._value_), self._object(x, name))
        if isinstance(x, bytes | range | DType | UOp) or (is_scalar(x) and not _is_record(x)):
            self._key.append(plain(x))
            return iter(())
        if not self._is_users(type(x).__module__) and _is_wrapper(x):  # such as a jitted function
            inside = _named_parts(name, x.__wrapped__, getattr(x, "__self__", None), getattr(x, "gradient", None))
            if _is_internal(type(x).__module__):
                return inside
            return chain(inside, self._attributes(attributes_of(x) or {}))
        if is_container:
            return self._container(x, name)
        if is_array(x) and x.dtype.hasobject:
            self._key.append(x.shape)
            return self._container(ArrayElements(x), name)
        return self._object(x, name)

    def _native_attributes(self, x: Any) -> Parts:
        """Yield (value, name) for the attributes of `x` that its C type computes or stores: those that the code names
        or methods of `x` read.

        Of computed attributes only plain values are followed: others, as `T` of an array, are made of data that is read
        in other ways.
        """
        kind: Any = type(x)
        if not (kinds := _native_kinds(kind)):
            return
        found = NativeAttributes(x)
        for k in sorted(k for k in kinds if k in self.attributes or k in _STEERING):
            value = found.get(k, EMPTY)
            if kinds[k] is types.MemberDescriptorType or is_fixed(value):
                self.entries.append((found, k, value))
                yield k, k
                yield value, k

    def _dict(self, x: dict, name: str) -> Parts:
        self._key.append((type(x), len(x)))
        self.orders.append((x, [*x]))
        for k, v in list(x.items()):
            self.entries.append((x, k, v))
            yield k, name
            yield v, k if isinstance(k, str) else name

    def _container(self, x: Any, name: str) -> Parts:
        """Yield (item, `name`) for the items of the container `x`, and guard the items if the container is mutable."""
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
        """Yield (object, name) for everything that the function `f` reads: its attributes, closure, defaults, globals
        and modules.
        """
        self._key.append(f.__code__)
        if not self._is_users(f.__globals__.get("__name__")):
            for name in ("__wrapped__", "registry"):  # wrapped by a library's decorator, or `singledispatch`
                yield f.__dict__.get(name), f.__name__
            if f is os.getenv:
                yield os.environ, f.__name__
            if not _is_internal(f.__globals__.get("__name__")):  # it may make an object: `dataclasses.replace`
                self._new_names.add("__class__")
            return
        attributes, variables, modules = names_in(f.__code__)
        self._new_names.update(attributes)
        self.needs_watch |= not nondeterminism.NAMES.isdisjoint(attributes) or not nondeterminism.NAMES.isdisjoint(
            variables
        )
        self.codes.append((f, f.__code__))
        yield from self._attributes(f.__dict__)
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=False):
            self.cells.append((cell, value := cell_content(cell)))
            is_super = name == "__class__" and name not in attributes and isinstance(value, type)
            yield _SuperOf(value) if is_super else value, name
        for name in ("__defaults__", "__kwdefaults__"):
            if (value := getattr(f, name)) is not None:
                self.slots.append((lambda: f, name, value))
                yield value, f.__name__
        for name in variables:
            value = f.__globals__.get(name, EMPTY)
            if value is EMPTY:
                yield EMPTY, name
            if value is type:
                self._new_names.add("__class__")
            elif id(value) in _REFLECTION and name != value.__name__:
                self._new_names |= {ANY, "__dict__"}
            if value is EMPTY or not isinstance(value, type | types.ModuleType) or self._is_users(_module_of(value)):
                yield from self._entry(f.__globals__, name)
            elif isinstance(value, types.ModuleType) and not _is_internal(value.__name__):
                yield value, name
        for m in modules:
            depth = len(m) - len(m.lstrip("."))
            home = (f.__globals__.get("__package__") or "").rsplit(".", depth - 1)[0] if depth else ""
            m = ".".join(filter(None, (home, m[depth:])))
            if not _is_internal(m):
                yield from self._entry(sys.modules, m)

    def _attributes(self, own: dict[str, Any]) -> Parts:
        """Yield (object, name) for the attributes in `own`, an object's `__dict__`, that the code names, or for all of
        them if the code may read any.
        """
        self._watch_new_attributes(own)
        for name in sorted(own if self._reads_all() else self.attributes.intersection(own)):
            yield name, name
            yield from self._entry(own, name)

    def _reads_all(self) -> bool:
        """Whether the code may read attributes that it does not name."""
        return not self.attributes.isdisjoint((ANY, "__dict__"))

    def _watch_new_attributes(self, own: Any) -> None:
        """Guard the keys of `own`, a dict of attributes, if the code may notice that an attribute is added."""
        if ABSENT in self.attributes or self._reads_all():
            self.orders.append((own, [*own]))

    def _entry(self, mapping: Any, name: str, known_as: str = "") -> Parts:
        """Guard the value of `mapping` at the key `name`, and yield (part of the value, name for messages) for what to
        follow of it.

        `known_as`: the name for messages, if it is not `name`.
        """
        value = mapping.get(name, EMPTY)
        self.entries.append((mapping, name, value))
        if isinstance(value, classmethod):  # it gets a class, and may make an object of it
            self._new_names.add("__class__")
        if value is not EMPTY:
            yield from ((part, known_as or name) for part in _functions_behind(value))

    def _namespace(self, x: Any, may_construct: bool = True) -> Parts:
        """Yield (object, name) for the attributes of `x`, a class or module, that the code names; for a library only
        plain values and functions.

        `may_construct`: the code may make an object of the class, so its constructors (`__init__` and the like) are
        yielded too.
        """
        self._key.append(x)
        if x is type:
            self._new_names.add("__class__")
        if x.__name__ in nondeterminism.MODULES:
            yield nondeterminism.generator_of(x.__name__, self.attributes), x.__name__
        kinds: list[Any] = [*x.__mro__, *type(x).mro(type(x))] if isinstance(x, type) else [x]
        for c in kinds:
            if self._is_users(_module_of(c)):
                self._watch_class(c)
                self._watch_new_attributes(vars(c))
                for name in sorted(k for k, v in vars(c).items() if self._is_relevant(k, v, may_construct)):
                    yield name, name
                    yield from self._entry(vars(c), name)
            elif isinstance(c, types.ModuleType):
                for name in sorted(self.attributes.intersection(vars(c))):
                    if vars(c)[name].__class__ in PLAIN or isinstance(vars(c)[name], _LIBRARY_VALUES):
                        yield name, name
                        yield from self._entry(vars(c), name)
        if "__subclasses__" in self.attributes and isinstance(x, type):
            yield from self._subclasses(x)

    def _subclasses(self, kind: type) -> Parts:
        """If `kind` is a class of the user or of this package, yield one pair (tuple of its direct subclasses, name of
        `kind`), and guard the tuple.
        """
        if self._is_users(kind.__module__) or _is_internal(kind.__module__):
            found = SubclassList(kind)
            self.contents.append((found, values := tuple(found)))
            yield values, kind.__name__

    def _watch_class(self, kind: Any) -> None:
        """Guard the number of attributes of `kind`, a user's class, and the value of its `__bases__`.

        A new attribute may hide an inherited one. `__bases__` that are all library classes are not guarded.
        """
        if kind in self._classes or not isinstance(kind, type):
            return
        self._classes.add(kind)
        self.sizes.append((vars(kind), len(vars(kind))))
        if any(self._is_users(b.__module__) for b in kind.__bases__):  # else new bases would have another layout
            self.slots.append((lambda: kind, "__bases__", kind.__bases__))

    def _object(self, x: Any, name: str) -> Parts:
        """Guard the attributes of the object `x` that the code may read, and yield (attribute value, name) for each.

        These are the attributes that the code names; for layers, optimizers and records, all attributes. `name`: the
        user's name of `x`.
        """
        kinds = type(x).__mro__
        if nondeterminism.is_generator(x):
            self.generators[name] = x
            self.is_complete = False
            self._key.append(ByIdentity(x))
            return
        own = attributes_of(x)
        users = [c for c in kinds if c is not object and self._is_users(c.__module__)]
        internal = [c for c in kinds if _is_internal(c.__module__)]
        if not users and (own is None or bytes_of(x) is not None):
            self._unknown_object(x, name)
            return
        if users and _has_buffer(x):  # an array of a class of the user's
            self.arrays.append((x, content := content_of(x)))
            self._key.append(_digest(content))
        has_value = not users and not internal and type(x).__hash__ not in (None, object.__hash__)
        self._key.append((type(x), x if has_value else _numeric_value(x)))
        for c in users:
            self._watch_class(c)
        if id(x) in self._weakly:
            self.slots.append((_reference(x), "__class__", x.__class__))
        else:
            self.kinds.append((x, type(x)))
        inherited = {
            name: c
            for c in reversed(users)
            for name, v in vars(c).items()
            if self._is_relevant(name, v, may_construct=False)
            or (name not in _CONSTRUCTORS and any(name in vars(o) for o in internal))
        }
        if own is not None:
            if internal:  # code of this package is not read: every attribute counts
                self.sizes.append((own, len(own)))
            every = internal or "__dict__" in self.attributes or fields(x) is not None
            found = set(own if every else self.attributes.intersection(own))
            if not users and type(x).__module__ in sys.stdlib_module_names:  # nor is code of the standard library
                found.update(k for k, v in own.items() if v.__class__ in PLAIN)
            if any((c.__module__, c.__name__) in _QUEUES for c in kinds):
                found.update(("queue", "_queue"))
                found.intersection_update(own)
            if not internal:
                self._watch_new_attributes(own)
                if not users or hasattr(type(x), "__getattr__"):
                    self.sizes.append((own, len(own)))  # an attribute of any name may be added
            if internal:  # class defaults, such as `training`, that the object may override
                found.update(k for c in internal for k, v in vars(c).items() if v.__class__ in PLAIN and k[0] != "_")
                readers = getattr(type(x), "readers", ())  # methods that read what is unread otherwise
                found.difference_update(
                    k
                    for k in getattr(type(x), "unread", ())
                    if self.attributes.isdisjoint((k, k.lstrip("_"), *readers))
                )
            inside = _names_inside(frozenset(c.__module__ for c in internal))
            if users and inside:  # plain values that no code reads, except a search for tensors
                unread = {k for k in found - self.attributes - inside if k in own and is_plain(own[k])}
                if "__dict__" not in self.attributes:
                    found -= unread
                    self.plains.extend((own, k) for k in sorted(unread))
            for k in (names := sorted(found)):
                known_as = name if k[0] == "_" and (not users or k in inside) else k
                yield k, known_as
                yield from self._entry(own, k, known_as)
                if k not in own:
                    yield getattr(type(x), k, EMPTY), known_as
            yield None, name  # end of the attributes
            if not internal:  # for objects of this package the number of attributes is guarded
                absent = {name[1:] for name in self.attributes if name[0] == "?" and name != ABSENT}
                for k in absent.union(inherited.keys() & self.attributes).difference(own, names):
                    self.entries.append((own, k, EMPTY))
        for name, c in sorted(inherited.items(), key=lambda item: item[0]):
            yield name, name
            if isinstance(vars(c)[name], types.MemberDescriptorType):
                if name != "__dict__":
                    self.slots.append((_reference(x), name, getattr(x, name, EMPTY)))
                    yield getattr(x, name, EMPTY), name
            else:
                yield from self._entry(vars(c), name)

    def _unknown_object(self, x: Any, name: str) -> None:
        """Append to the key `x`, an object of a class that this module does not know. `name`: the user's name of `x`.

        The object counts by its bytes if it has a buffer, by equality if it is hashable, else by identity.
        """
        if isinstance(x, Iterator) and not isinstance(x, io.IOBase):
            self.iterators.append(name)
            self.is_complete = False
        if bytes_of(x) is not None:
            self.arrays.append((x, content := content_of(x)))
            self._key.append((type(x), *_digest(content)))
            return
        if isinstance(x, SimpleQueue):
            self.sizes.append((size := QueueSize(x), n := len(size)))
            self._key.append(n)
        try:
            hash(x)
        except TypeError:
            self.is_complete = False
            self._key.append(ByIdentity(x))
            return
        if type(x).__eq__ is object.__eq__ and not callable(x):  # it may be mutable
            self.is_complete = False
        self._key.append((type(x), x))

    def _is_relevant(self, name: str, value: Any, may_construct: bool = True) -> bool:
        """Whether the walk follows the attribute `name`, with the value `value`, of a user's class or module.

        `may_construct`: the code may make an object of the class.
        """
        any_value = (ANY in self.attributes or self._is_data(value)) and name[:2] != "__"
        called = _is_called(name, value) and (
            may_construct or name not in _CONSTRUCTORS or "__class__" in self.attributes
        )
        return name in self.attributes or called or any_value

    def _is_data(self, value: Any) -> bool:
        """Whether the attribute `value` is neither code, a class nor a module, and the code may read it through
        `__dict__`.
        """
        return "__dict__" in self.attributes and not isinstance(value, (*_CODE_TYPES, type, types.ModuleType))

    def _is_users(self, module: str | None) -> bool:
        return _is_users(module) or _top_package(module) in self._root_packages


def _named_parts(name: str, *parts: Any) -> Parts:
    return ((part, name) for part in parts)


def _functions_behind(value: Any) -> tuple[Any, ...]:
    """Return the objects to follow for `value`, an attribute of a class: the functions inside of a descriptor such as a
    property, or the value itself.
    """
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
    """Whether Python itself may call `value`, the attribute `name` of a class: a special method such as `__add__`."""
    return name[:2] == name[-2:] == "__" and isinstance(value, _CODE_TYPES)


@functools.cache
def _names_inside(modules: frozenset[str]) -> frozenset[str]:
    """Return all names in the code of `modules` and of `monolect.nn.state`. `modules`: names of modules of this package
    with classes of layers or optimizers.

    That code may read attributes with these names. Returns an empty set if some of the code is not available.
    """
    names = [names_of_module(m) for m in (modules and (*modules, "monolect.nn.state"))]
    return frozenset().union(*names) if all(names) else frozenset()


def attributes_of(x: Any) -> dict[str, Any] | None:
    """Return the `__dict__` of `x`, or None if it has none, without running code of the user, such as `__getattr__`."""
    get: Any = type(x).__getattribute__
    try:
        found: Any = (object.__getattribute__ if isinstance(get, types.FunctionType) else get)(x, "__dict__")
    except AttributeError:
        return None
    return found


def _is_wrapper(x: Any) -> bool:
    """Whether `x` has a `__wrapped__` function, as decorators set it."""
    if "__wrapped__" in (attributes_of(x) or ()) or isinstance(x, staticmethod | classmethod):
        return True
    return _is_internal(type(x).__module__) and hasattr(x, "__wrapped__")


def _numeric_value(x: Any) -> Any:
    """Return the number that `x` contains, for the key: an int for an instance of int, its repr for one of float, else
    None.
    """
    return repr(float(x)) if isinstance(x, float) else int(x) if isinstance(x, int) else None


def _digest(content: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the part of a key for an array: its layout as strings, and a hash of its bytes. `content`: the result of
    `content_of` for the array.
    """
    data, *layout = content
    return *map(str, layout), blake2b(data, digest_size=20).digest()


def _has_buffer(x: Any) -> bool:
    """Whether `x` gives access to its bytes by the buffer protocol, without code of the user such as `__array__`."""
    try:
        memoryview(x).release()
    except (TypeError, ValueError, BufferError):
        return False
    return True


def _is_record(x: Any) -> bool:
    """Whether `x` is a structured NumPy scalar (`np.void`), which is mutable."""
    return is_scalar(x) and isinstance(x, np.void)


@functools.lru_cache(256)
def _native_kinds(kind: type) -> dict[str, type]:
    """Return, by name, the type of each attribute descriptor that Python and NumPy define in C for objects of class
    `kind`.

    The type is GetSetDescriptorType for a computed attribute, MemberDescriptorType for a stored one. C attributes of
    other libraries are left out, since reading them may have any effect.
    """
    kinds = types.GetSetDescriptorType, types.MemberDescriptorType
    classes = [c for c in kind.__mro__ if _top_package(c.__module__) in (*sys.stdlib_module_names, "numpy")]
    return {k: type(v) for c in classes for k, v in vars(c).items() if isinstance(v, kinds) and k[:2] != "__"}


@functools.lru_cache(256)
def has_user_code(kind: type, attributes: frozenset[str]) -> bool:
    """Whether the class `kind` has code or data of the user: an attribute with a name in `attributes`, or a special
    method that Python calls by itself.

    Methods that dataclasses and named tuples generate do not count.
    """
    users = [c for c in kind.__mro__ if _is_users(c.__module__)]
    found = [(k, v) for c in users for k, v in vars(c).items() if k in attributes or _is_called(k, v)]
    return any(not isinstance(v, types.FunctionType) or v.__code__.co_filename[0] != "<" for _, v in found)


def _package(root: Any) -> str:
    """Return the top-level package of `root` (a function, or else of its class); "" for the standard library and this
    package.
    """
    f = getattr(root, "__func__", root)
    if isinstance(f, types.FunctionType):
        module = f.__globals__.get("__name__")
    else:
        module = (f if isinstance(f, type) else type(f)).__module__
    top = _top_package(module)
    return "" if top in sys.stdlib_module_names or top == _PACKAGE else top


def _top_package(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _reference(x: Any) -> Callable[[], Any]:
    """Return a function without arguments that returns `x`; it holds `x` weakly if `x` allows weak references."""
    try:
        return weakref.ref(x)
    except TypeError:
        return lambda: x


def _module_of(x: Any) -> str | None:
    return x.__name__ if isinstance(x, types.ModuleType) else x.__module__


def _is_internal(module: str | None) -> bool:
    return _top_package(module) == _PACKAGE


@functools.cache
def _is_users(module: str | None) -> bool:
    """Whether the module named `module` is the user's code, which the walk reads, and not part of Python, this package
    or an installed library.
    """
    top = _top_package(module)
    if top in sys.stdlib_module_names or top == _PACKAGE:
        return False
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return "site-packages" not in file and "dist-packages" not in file


__all__ = ["Dependencies", "has_user_code", "attributes_of"]
