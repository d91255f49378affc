"""Define the table of settings. A setting is an environment variable, an attribute of `settings` and a `Context` keyword.

What it is for: one table says which settings exist, what they mean, and which layer reads them.
What it is not: it knows no devices, passes or kernels, so higher layers check the names in DEVICE and STOP_AFTER.
Invariant: an attribute of `settings` always holds a value that its row allows; a refused value changes nothing.

Reading `settings.DEBUG` is a plain slot read, cheap enough for inner loops. Settings belong to the process, not to a
thread: a `Context` in one thread affects all threads, because the compiler's worker threads must see it. Those in
PER_THREAD, which only change the graph that a thread builds, belong to each thread: a new thread has the values of the
environment.

DEBUG levels are presets of TRACE, each adding to the one below; `settings.tracing` holds the words of both:

    DEBUG=1  totals   kernels, time and bytes of each run      DEBUG=4  src         the generated source
    DEBUG=2  cmds     one line per kernel                      DEBUG=5  passes, ir  each pass; IR after each change
    DEBUG=3  actions  the optimizer actions that were chosen   DEBUG=6  rules       every rule that fired, before and after
"""

import os
from collections.abc import Callable
from contextlib import ContextDecorator
from threading import RLock, local
from typing import TYPE_CHECKING, Any, NamedTuple

from monolect.base.errors import SettingError, nearest

DEBUG_PRESETS: tuple[tuple[str, ...], ...] = (
    (), ("totals",), ("cmds",), ("actions",), ("src",), ("passes", "ir"), ("rules",),
)  # fmt: skip
TRACE_WORDS: tuple[str, ...] = tuple(word for words in DEBUG_PRESETS for word in words)
COMPILING_WORDS = frozenset(word for words in DEBUG_PRESETS[3:] for word in words)  # words that print while compiling


class Setting(NamedTuple):
    """A row of the table of settings.

    `kind` is "int", "str", "flag" (any non-empty text means 1), "words" (comma-separated list of `choices`) or "names"
    (comma-separated list of names that `check_names` allows).
    """

    name: str
    kind: str
    default: int | str
    choices: tuple[str, ...]
    min: int | None
    max: int | None
    layer: str
    meaning: str

    def expected(self) -> str:
        """Return a description of the allowed values, for error messages."""
        if self.kind == "words":
            return "a comma list of " + ", ".join(self.choices)
        if self.kind == "names":
            return "a comma list of names"
        if self.kind == "str":
            named = ", ".join(filter(None, self.choices)) + (", or empty" if "" in self.choices else "")
            return f"one of {named}" if self.choices else "a text"
        if self.min is not None and self.max is not None:
            return f"an integer from {self.min} to {self.max}"
        return "an integer" if self.min is None else f"an integer of at least {self.min}"

    def check(self, value: object) -> int | str:
        """Return `value` as this setting stores it. Raises SettingError if the row does not allow it."""
        if self.kind in ("int", "flag"):
            # True is accepted as 1; the stored value is always a plain int.
            allowed = isinstance(value, int) and (self.min is None or value >= self.min)
            if allowed and isinstance(value, int) and (self.max is None or value <= self.max):
                return int(value)
        elif isinstance(value, str):
            words = [word.strip() for word in value.split(",") if word.strip()]
            if self.kind == "names":
                if check_names is not None and words:
                    check_names(words)
                return ",".join(sorted(set(words)))
            if self.kind == "words":
                if all(word in self.choices for word in words):
                    return ",".join(words)
            elif not self.choices or value in self.choices:
                return value
        raise SettingError(f"bad value for setting {self.name}", expected=self.expected(), found=repr(value))

    def parse(self, text: str) -> int | str:
        """Return the value of the text of an environment variable; an empty text means the default."""
        if not text:
            return self.default
        if self.kind == "flag":
            return 1
        if self.kind == "int":
            try:
                return self.check(int(text))
            except ValueError:
                raise SettingError(
                    f"bad value for environment variable {self.name}", expected=self.expected(), found=repr(text)
                ) from None
        return self.check(text)


# Function that raises SettingError for a name that DISABLE may not have. The package sets it, because higher layers own
# the names.
check_names: Callable[[list[str]], None] | None = None
watchers: list[Callable[[], None]] = []  # functions that are called after SIMPLIFY, DISABLE, DEBUG or TRACE changed
switched: list[
    Callable[[], None]
] = []  # called after SIMPLIFY or DISABLE changed; they clear caches without these keys

CUDA_COMPILERS = ("auto", "nvrtc", "llvm")
CPU_UNITS = ("", "amx", "bf16", "vnni", "avxvnni")

# fmt: off
TABLE: tuple[Setting, ...] = (
    #       name              kind     default choices      min   max   layer       meaning
    Setting("DEBUG",          "int",   0,      (),          0,    6,    "all",      "how much to print; presets of TRACE"),
    Setting("TRACE",          "words", "",     TRACE_WORDS, None, None, "all",      "what to print"),
    Setting("NOOPT",          "int",   0,      (),          0,    1,    "optimize", "1: apply no optimizer action"),
    Setting("SIMPLIFY",       "int",   1,      (),          0,    1,    "ir",       "0: nodes are built as requested, without the identities of `monolect rules` that are applied during construction. For debugging: slow code"),
    Setting("DISABLE",        "names", "",     (),          None, None, "all",      "comma-separated list of rules, passes and actions to switch off: names from `monolect rules` and `monolect passes`, except those that are needed. For debugging; `monolect bisect` sets it"),
    Setting("BEAM",           "int",   0,      (),          0,    64,   "optimize", "plans kept in each round of a search for actions by timing; 0: the heuristic chooses"),
    Setting("TF32",           "int",   0,      (),          0,    1,    "optimize", "1: matrix units of a GPU may round the operands of float32 products to 10 fraction bits"),
    Setting("DISTRIBUTED_TIMEOUT","int", 300,    (),          1,    None, "backend",  "seconds after which a process of a job raises DistributedError if another one sends nothing"),
    Setting("EMULATE_UNITS",  "str",   "",     CPU_UNITS,   None, None, "backend",  "matrix units that the cpu device emulates in software, those of an x86 processor with amx (and bf16, vnni), bf16 (and vnni), vnni or avxvnni; empty: the units of this processor. For tests: slow"),
    Setting("WINOGRAD",       "int",   2,      (),          0,    4,    "tensor",   "largest Winograd tile for 3x3 convolutions of stride 1 on a CPU, used where it costs less. 0: none; 2: 2x2, with errors like those of the plain sum of products; 4: also 4x4, with float32 errors up to 3e-6 of the largest value instead of 1e-6. An inf or nan spreads over its tile"),
    Setting("HOIST",          "int",   1,      (),          0,    1,    "runtime",  "1: a captured step computes once the values that depend only on its constants, packed weights included, and keeps them (captures share one copy of the packed weights for each layout); 0: it computes them at every replay"),
    Setting("PACK_LIMIT_MB",  "int",   8192,   (),          0,    None, "runtime",  "limit of the memory for packed weights that captured steps keep, in MB; a step whose weights do not fit when it is captured packs them at every replay; 0: none are kept"),
    Setting("PROGRESS",       "int",   1,      (),          0,    1,    "all",      "1: show progress bars of long work, on a terminal"),
    Setting("VERIFY",         "int",   0,      (),          0,    3,    "pipeline", "1: verify the IR after every pass; 2: also interpret each kernel before and after every pass, and compare the results of programs with their kernels and the tensor graph, at a few elements; 3: only compare the results of programs, and use the caches as usual"),
    Setting("CHECK_BOUNDS",   "int",   0,      (),          0,    1,    "lower",    "1: prove that every index of a kernel is in bounds; also compute and check integer-tensor indices at the call, and those of a captured step after it"),
    Setting("DEVICE",         "str",   "cpu",  (),          None, None, "tensor",   "default device of tensors"),
    Setting("THREADS",        "int",   0,      (),          0,    None, "backend",  "threads of the cpu pool; 0: one per core"),
    Setting("COMPILE_THREADS", "int",  0,      (),          0,    None, "backend",  "threads that compile, including the caller's, if the compiler can use several; 0: one per core"),
    Setting("CC",             "str",   "",     (),          None, None, "backend",  "C compiler of the c device; empty: the first that is found of clang, gcc and cc"),
    Setting("HIPCC",          "str",   "",     (),          None, None, "backend",  "clang that compiles for AMD GPUs; empty: the newest that is found"),
    Setting("CUDACC",         "str",   "auto", CUDA_COMPILERS, None, None, "backend", "compiler of the cuda device, read when the device is opened; auto: NVRTC, or LLVM if NVRTC is not installed"),
    Setting("COMPILE_CACHE",  "int",   1,      (),          0,    1,    "base",     "1: keep compiled programs on disk"),
    Setting("CACHE_LIMIT_MB", "int",   512,    (),          1,    None, "base",     "size limit of one disk cache, in MB"),
    Setting("MONOLECT_CACHE", "str",   "",     (),          None, None, "base",     "folder of the disk caches; empty: the cache folder of the platform"),
    Setting("DUMP",           "str",   "",     (),          None, None, "pipeline", "folder to which the IR after each pass is written"),
    Setting("STOP_AFTER",     "str",   "",     (),          None, None, "pipeline", "name of the pass to stop after"),
    Setting("NO_COLOR",       "flag",  0,      (),          0,    1,    "all",      "set: print without colours"),
    Setting("TRAINING",       "int",   0,      (),          0,    1,    "nn",       "1: dropout and batch statistics are active"),
    Setting("AUTOCAST",       "str",   "",     ("", "bfloat16", "float16"), None, None, "tensor", "dtype of the operands of products, as in amp.autocast(); empty: their own"),
    Setting("GRAD",           "int",   1,      (),          0,    1,    "tensor",   "0: new tensors have no graph for gradients, as in no_grad()"),
)
# fmt: on

BY_NAME: dict[str, Setting] = {row.name: row for row in TABLE}


def find_setting(name: str) -> Setting:
    """Return the row called `name`. Raises SettingError, with the nearest known name, if there is none."""
    row = BY_NAME.get(name)
    if row is not None:
        return row
    hint = nearest(name.upper(), BY_NAME) or "one of " + ", ".join(BY_NAME)
    raise SettingError(f"unknown setting {name}", expected=hint, found=name)


# Settings that make the compiler check, print or stop. VERIFY=1 or 2, and COMPILING_WORDS in DEBUG or TRACE, do too.
LOOKING: frozenset[str] = frozenset(("CHECK_BOUNDS", "DUMP", "STOP_AFTER"))
STEERING: tuple[str, ...] = (  # settings that are part of the key of captured steps
    "TRAINING", "WINOGRAD", "CHECK_BOUNDS", "DEVICE", "NOOPT", "BEAM", "TF32", "EMULATE_UNITS", "SIMPLIFY", "DISABLE",
    "GRAD", "AUTOCAST",
)  # fmt: skip
PER_THREAD: tuple[str, ...] = STEERING[-2:]  # settings that have a separate value in each thread
_WATCHED: frozenset[str] = frozenset(("SIMPLIFY", "DISABLE", "DEBUG", "TRACE"))
_steerings: dict[tuple, tuple] = {}
_holding = (
    RLock()
)  # held while blocks, and the number of threads with modes of their own, change; a finalizer may run inside


class Modes(local):
    """The values of the settings in PER_THREAD in this thread, one attribute for each row.

    `key` is the tuple of the values, `first` that of the environment. Equal tuples are the same object. `held` are the
    blocks that hold such settings.
    """

    GRAD: int
    AUTOCAST: str
    key: tuple[int | str, ...]
    first: tuple[int | str, ...]

    def __init__(self, values: dict[str, int | str]) -> None:
        """Python calls it in each thread that uses the object, with the same `values`."""
        self.held: list[Held] = []
        self.change(values)
        self.first = self.key

    def change(self, values: dict[str, int | str]) -> None:
        """Set the settings in `values`."""
        vars(self).update(values)
        key = tuple(getattr(self, name) for name in PER_THREAD)
        self.key = _steerings.setdefault(key, key)


class Settings:
    """The current values of the settings, one attribute for each row.

    Assigning checks the value against its row; reading checks nothing. Derived attributes:
    - `tracing`: the set of active TRACE words; `disabled`: the set of names in DISABLE.
    - `switches`: SIMPLIFY and DISABLE as a suffix of cache keys; "" if nothing is switched off.
    - `choices`: the settings that affect the plans of kernels; part of the key of everything that is compiled. Equal
      tuples are the same object, also before and after a block that changes settings.
    - `steering`: the settings that affect the graph that a function builds; part of the key of everything that is
      captured. `shared_steering` are those of the process and `modes` those of this thread. Equal tuples of
      `shared_steering` are the same object. `usual_steering` is that object while the modes of all threads are those of
      the environment, else None: one comparison then tells that nothing has changed.
    - `looking`: the last item of `choices` and `steering`. It is 0 if kernels may come from caches. If a setting makes
      the compiler check or show its work (`LOOKING`), it is a new number each time such a setting is assigned, so that
      each kernel is compiled again, and disk caches are not used. VERIFY=3 keeps 0: it compares results from caches.
    """

    __slots__ = (
        *(name for name in BY_NAME if name not in PER_THREAD),
        *("_times", "choices", "disabled", "looking", "modes", "n_unusual", "shared_steering", "switches"),
        *("tracing", "usual_steering"),
    )

    if TYPE_CHECKING:
        _times: int
        choices: tuple[int | str, ...]
        disabled: frozenset[str]
        looking: int
        modes: Modes
        n_unusual: int  # threads whose modes differ from those of the environment
        shared_steering: tuple[int | str, ...]
        usual_steering: tuple[int | str, ...] | None
        switches: str
        tracing: frozenset[str]

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, environment: dict[str, str]) -> None:
        values = {row.name: row.parse(environment.get(row.name, "")) for row in TABLE}
        object.__setattr__(self, "modes", Modes({name: values.pop(name) for name in PER_THREAD}))
        object.__setattr__(self, "n_unusual", 0)
        for name, value in values.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_times", 1)
        self._switch()
        self._derive(1)

    def __setattr__(self, name: str, value: object) -> None:
        checked = find_setting(name).check(value)
        if name in PER_THREAD:
            self._change_mode(name, checked)
            return
        object.__setattr__(self, name, checked)
        if name == "VERIFY" or name in LOOKING or (name in ("DEBUG", "TRACE") and self._words() & COMPILING_WORDS):
            object.__setattr__(self, "_times", self._times + 1)
            self._derive(self._times)
        else:
            self._derive(self.looking)
        if name in _WATCHED:
            before = self.switches
            self._switch()
            for watcher in watchers:
                watcher()
            for forget in switched if self.switches != before else ():
                forget()

    def _change_mode(self, name: str, value: int | str) -> None:
        """Set a setting of this thread."""
        modes = self.modes
        was_usual = modes.key is modes.first
        modes.change({name: value})
        if was_usual is not (modes.key is modes.first):
            with _holding:
                object.__setattr__(self, "n_unusual", self.n_unusual + (1 if was_usual else -1))
                object.__setattr__(self, "usual_steering", None if self.n_unusual else self.shared_steering)

    @property
    def GRAD(self) -> int:  # noqa: N802
        """The row GRAD in this thread."""
        return self.modes.GRAD

    @property
    def AUTOCAST(self) -> str:  # noqa: N802
        """The row AUTOCAST in this thread."""
        return self.modes.AUTOCAST

    @property
    def steering(self) -> tuple[int | str, ...]:
        """The settings that affect the graph that a function builds, in the order of STEERING, then `looking`."""
        return (*self.shared_steering[:-1], *self.modes.key, self.looking)

    @property
    def checks_passes(self) -> bool:
        """Whether VERIFY is 1 or 2: every pass is verified, so kernels are compiled again."""
        return 0 < self.VERIFY < 3

    def _switch(self) -> None:
        """Update `switches` and `disabled`."""
        off = "" if self.SIMPLIFY and not self.DISABLE else f"/{self.SIMPLIFY}/{self.DISABLE}"
        object.__setattr__(self, "switches", off)
        object.__setattr__(self, "disabled", frozenset(filter(None, self.DISABLE.split(","))))

    def _words(self) -> frozenset[str]:
        """Return the active TRACE words: those of the DEBUG level and of TRACE."""
        words = [word for preset in DEBUG_PRESETS[: self.DEBUG + 1] for word in preset]
        return frozenset(words).union(filter(None, self.TRACE.split(",")))

    def _derive(self, looking: int) -> None:
        """Update `tracing`, `looking`, `choices` and `shared_steering`; `looking` is the number to use if compiling is shown."""
        object.__setattr__(self, "tracing", self._words())
        is_shown = self.checks_passes or any(getattr(self, n) for n in LOOKING) or self.tracing & COMPILING_WORDS
        object.__setattr__(self, "looking", looking if is_shown else 0)
        steered = (self.SIMPLIFY, self.DISABLE)
        choices = (self.NOOPT, self.BEAM, self.TF32, self.EMULATE_UNITS, *steered, self.looking)
        steering = (*(getattr(self, name) for name in STEERING if name not in PER_THREAD), self.looking)
        with _holding:
            object.__setattr__(self, "choices", _steerings.setdefault(choices, choices))
            object.__setattr__(self, "shared_steering", _steerings.setdefault(steering, steering))
            object.__setattr__(self, "usual_steering", None if self.n_unusual else self.shared_steering)


class Held:
    """A value that a block holds a setting at, the value to restore, and the list of blocks that it is part of."""

    __slots__ = ("before", "blocks", "name")

    def __init__(self, name: str, before: int | str, blocks: "list[Held]") -> None:
        self.name, self.before, self.blocks = name, before, blocks


settings = Settings(dict(os.environ))
_held: list[Held] = []  # of all threads, in the order in which their blocks were entered


def hold(name: str, value: int | str) -> Held:
    """Set a setting until `release`. Blocks of several threads or tasks may end in any order: the value from before
    all of them is restored when the last one ends.
    """
    with _holding:
        held = Held(name, getattr(settings, name), settings.modes.held if name in PER_THREAD else _held)
        setattr(settings, name, value)
        held.blocks.append(held)
    return held


def release(held: Held) -> None:
    """End what `hold` began: restore the value, or leave that to the block that was entered next and has not ended.

    A block of a thread that ends in another one, as that of a generator may, changes nothing there.
    """
    with _holding:
        blocks = held.blocks
        at = blocks.index(held)
        later = next((h for h in blocks[at + 1 :] if h.name == held.name), None)
        del blocks[at]
        if later is not None:
            later.before = held.before
        elif held.name not in PER_THREAD or blocks is settings.modes.held:
            setattr(settings, held.name, held.before)


class Context(ContextDecorator):
    """Set some settings for a `with` block or a decorated function, and always restore them afterwards.

    For example, `@Context(TRAINING=1)` decorates a training step. All names and values are checked before any is set:
    raises SettingError. A Context may be entered again while it is active.

    >>> with Context(THREADS=1, NOOPT=1):
    ...     settings.THREADS, (Tensor([1.0]) + 1).tolist()
    (1, [2.0])
    """

    def __init__(self, **values: int | str) -> None:
        self._values = {name: find_setting(name).check(value) for name, value in values.items()}
        self._saved: list[tuple[int, list[Held]]] = []

    def __enter__(self) -> "Context":
        looking = settings.looking
        self._saved.append((looking, [hold(name, value) for name, value in self._values.items()]))
        return self

    def __exit__(self, *exc_info: object) -> None:
        looking, values = self._saved.pop()
        for held in values:
            release(held)
        settings._derive(looking)  # the old number: kernels that were compiled before the block are reused


__all__ = [
    "BY_NAME",
    "CPU_UNITS",
    "Context",
    "DEBUG_PRESETS",
    "Held",
    "STEERING",
    "Setting",
    "Settings",
    "TABLE",
    "TRACE_WORDS",
    "find_setting",
    "hold",
    "release",
    "settings",
    "switched",
    "watchers",
]
