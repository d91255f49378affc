"""THE table of settings: each one is an environment variable, an attribute of `settings`, and a keyword of `Context`.

What it is for: one place that says which settings exist, what they mean, and which layer reads them.
What it is not: it knows no devices, passes or kernels, so the names held by DEVICE and STOP_AFTER are checked by the
layers that own those names.
Invariant: an attribute of `settings` always holds a value its row allows; a refused value changes nothing.

Reading `settings.DEBUG` is a plain slot read, cheap enough for inner loops. Settings belong to the process, not to a
thread: a `Context` in one thread is seen by all of them, as the compiler's worker threads must see what the user set.

DEBUG levels are presets of TRACE, each adding to the one below; `settings.tracing` holds the words of both:

    DEBUG=1  totals   kernels, time and bytes of each run      DEBUG=4  src         the generated source
    DEBUG=2  cmds     one line per kernel                      DEBUG=5  passes, ir  each pass; IR after each change
    DEBUG=3  actions  the optimizer actions that were chosen   DEBUG=6  rules       every rule that fired, before and after
"""

import os
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import TYPE_CHECKING, Any, NamedTuple

from monolect.base.errors import SettingError, nearest

DEBUG_PRESETS: tuple[tuple[str, ...], ...] = (
    (), ("totals",), ("cmds",), ("actions",), ("src",), ("passes", "ir"), ("rules",),
)  # fmt: skip
TRACE_WORDS: tuple[str, ...] = tuple(word for words in DEBUG_PRESETS for word in words)
COMPILING_WORDS = frozenset(word for words in DEBUG_PRESETS[3:] for word in words)  # what only who compiles can show


class Setting(NamedTuple):
    """One row: `kind` is int, str, `flag` (any non-empty text means 1), `words` (comma list out of `choices`) or `names`
    (comma list of what `check_names` knows).
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
        """What a value of this setting must be, in words."""
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
        """Return `value` as this setting stores it. Raises SettingError when the row does not allow it."""
        if self.kind in ("int", "flag"):
            # bool is an int in Python and True is a fair way to say 1; what is stored is always a plain int.
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
        """Read the text of an environment variable; an empty text means the default."""
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


# Raises SettingError for a name that DISABLE may not hold. The package sets it: the layers that own the names are above.
check_names: Callable[[list[str]], None] | None = None
watchers: list[Callable[[], None]] = []  # called when SIMPLIFY, DISABLE, DEBUG or TRACE has changed
switched: list[Callable[[], None]] = []  # empty caches whose keys lack SIMPLIFY and DISABLE, when one of these changes

CUDA_COMPILERS = ("auto", "nvrtc", "llvm")
CPU_UNITS = ("", "amx", "bf16", "vnni", "avxvnni")

# fmt: off
TABLE: tuple[Setting, ...] = (
    #       name              kind     default choices      min   max   layer       meaning
    Setting("DEBUG",          "int",   0,      (),          0,    6,    "all",      "how much to print; presets of TRACE"),
    Setting("TRACE",          "words", "",     TRACE_WORDS, None, None, "all",      "what to print"),
    Setting("NOOPT",          "int",   0,      (),          0,    1,    "optimize", "1: apply no optimizer action"),
    Setting("SIMPLIFY",       "int",   1,      (),          0,    1,    "ir",       "0: nodes are built as they are asked for, without the identities of `monolect rules` that are applied on construction. For debugging: slow code"),
    Setting("DISABLE",        "names", "",     (),          None, None, "all",      "rules, passes and actions that are not used: names from `monolect rules` and `monolect passes`, but for those that are needed. For debugging; `monolect bisect` sets it"),
    Setting("BEAM",           "int",   0,      (),          0,    64,   "optimize", "plans kept in each round of a search for actions by timing; 0: the heuristic chooses"),
    Setting("TF32",           "int",   0,      (),          0,    1,    "optimize", "1: matrix units of a GPU may round the operands of float32 products to 10 fraction bits"),
    Setting("EMULATE_UNITS",  "str",   "",     CPU_UNITS,   None, None, "backend",  "the cpu device has the matrix units of such an x86 processor, each instruction in software: amx (with bf16 and vnni), bf16 (with vnni), vnni, avxvnni; empty: the units of this processor. For tests: slow"),
    Setting("WINOGRAD",       "int",   2,      (),          0,    4,    "tensor",   "largest Winograd tiles for 3x3 convolutions of stride 1 on a CPU, used where they cost less. 0: none; 2: 2x2, with errors like those of the plain sum of products; 4: also 4x4, with float32 errors up to 3e-6 of the largest value instead of 1e-6. A value that is not finite spreads over its tile"),
    Setting("HOIST",          "int",   1,      (),          0,    1,    "runtime",  "1: a captured step computes once what depends on its constants alone, packed weights included, and keeps it (captures share packed weights, one copy a layout); 0: at every replay"),
    Setting("PACK_LIMIT_MB",  "int",   8192,   (),          0,    None, "runtime",  "bound of the memory for packed weights that captured steps keep, in MB; a step whose weights do not fit when it is captured packs them at every replay; 0: none are kept"),
    Setting("PROGRESS",       "int",   1,      (),          0,    1,    "all",      "1: show progress bars of long work, on a terminal"),
    Setting("VERIFY",         "int",   0,      (),          0,    3,    "pipeline", "1: verify the IR after every pass; 2: also interpret each kernel before and after every pass, and compare what programs wrote with their kernels and the tensor graph, at a few elements; 3: only compare what programs wrote, and use the caches as they are"),
    Setting("CHECK_BOUNDS",   "int",   0,      (),          0,    1,    "lower",    "1: prove every index of a kernel, compute and check integer-tensor indices at the call, those of a captured step after it"),
    Setting("DEVICE",         "str",   "cpu",  (),          None, None, "tensor",   "device of tensors that name none"),
    Setting("THREADS",        "int",   0,      (),          0,    None, "backend",  "threads of the cpu pool; 0: one per core"),
    Setting("COMPILE_THREADS", "int",  0,      (),          0,    None, "backend",  "threads that compile, the caller's included, where the compiler can use several; 0: one per core"),
    Setting("CC",             "str",   "",     (),          None, None, "backend",  "the C compiler of the c device; empty: the first found of clang, gcc and cc"),
    Setting("HIPCC",          "str",   "",     (),          None, None, "backend",  "the clang that compiles for AMD GPUs; empty: the newest found"),
    Setting("CUDACC",         "str",   "auto", CUDA_COMPILERS, None, None, "backend", "the compiler of the cuda device when it is opened; auto: NVRTC, or LLVM where that is not installed"),
    Setting("COMPILE_CACHE",  "int",   1,      (),          0,    1,    "base",     "1: keep compiled programs on disk"),
    Setting("CACHE_LIMIT_MB", "int",   512,    (),          1,    None, "base",     "size bound of one disk cache, in MB"),
    Setting("MONOLECT_CACHE", "str",   "",     (),          None, None, "base",     "folder of the disk caches; empty: where the platform keeps caches"),
    Setting("DUMP",           "str",   "",     (),          None, None, "pipeline", "folder to write the IR after each pass into"),
    Setting("STOP_AFTER",     "str",   "",     (),          None, None, "pipeline", "name of the pass to stop after"),
    Setting("NO_COLOR",       "flag",  0,      (),          0,    1,    "all",      "set: print without colours"),
    Setting("TRAINING",       "int",   0,      (),          0,    1,    "nn",       "1: dropout and batch statistics are active"),
)
# fmt: on

BY_NAME: dict[str, Setting] = {row.name: row for row in TABLE}


def find_setting(name: str) -> Setting:
    """The row called `name`. Raises SettingError, with the nearest known name, when there is none."""
    row = BY_NAME.get(name)
    if row is not None:
        return row
    hint = nearest(name.upper(), BY_NAME) or "one of " + ", ".join(BY_NAME)
    raise SettingError(f"unknown setting {name}", expected=hint, found=name)


# Settings under which the compiler checks, prints or stops, as under VERIFY below 3 and DEBUG or TRACE with COMPILING_WORDS.
LOOKING: frozenset[str] = frozenset(("CHECK_BOUNDS", "DUMP", "STOP_AFTER"))
STEERING: tuple[str, ...] = (
    "TRAINING", "WINOGRAD", "CHECK_BOUNDS", "DEVICE", "NOOPT", "BEAM", "TF32", "EMULATE_UNITS", "SIMPLIFY", "DISABLE",
)  # fmt: skip
_WATCHED: frozenset[str] = frozenset(("SIMPLIFY", "DISABLE", "DEBUG", "TRACE"))
_steerings: dict[tuple, tuple] = {}


class Settings:
    """The current values, one attribute a row; `tracing`: the set of TRACE words that are on, `disabled`: of the names
    in DISABLE. `switches` is SIMPLIFY and DISABLE as part of a name, "" where nothing is switched off.

    `choices` decides on the plans of kernels and is part of the key of everything that is compiled. `steering` adds what
    decides on the graph that a function builds, and is part of the key of everything that is captured (equal ones are
    the same object). `looking`, the last item of both, is 0 as long as caches may stand in for the compiler. Where a
    setting asks to check or show its work (`LOOKING`) it is a number of its own for each time that one of them was set,
    so that each kernel is compiled once more for it; caches on disk are then left alone. `VERIFY=3` is the exception: it
    compares what a process gets from its caches.

    Assigning checks the value against its row; reading checks nothing.
    """

    __slots__ = (*BY_NAME, "_times", "choices", "disabled", "looking", "steering", "switches", "tracing")

    if TYPE_CHECKING:
        _times: int
        choices: tuple[int | str, ...]
        disabled: frozenset[str]
        looking: int
        steering: tuple[int | str, ...]
        switches: str
        tracing: frozenset[str]

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, environment: dict[str, str]) -> None:
        for row in TABLE:
            object.__setattr__(self, row.name, row.parse(environment.get(row.name, "")))
        object.__setattr__(self, "_times", 1)
        self._switch()
        self._derive(1)

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, find_setting(name).check(value))
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

    @property
    def checks_passes(self) -> bool:
        """Whether every pass is verified, so that kernels are compiled once more."""
        return 0 < self.VERIFY < 3

    def _switch(self) -> None:
        off = "" if self.SIMPLIFY and not self.DISABLE else f"/{self.SIMPLIFY}/{self.DISABLE}"
        object.__setattr__(self, "switches", off)
        object.__setattr__(self, "disabled", frozenset(filter(None, self.DISABLE.split(","))))

    def _words(self) -> frozenset[str]:
        words = [word for preset in DEBUG_PRESETS[: self.DEBUG + 1] for word in preset]
        return frozenset(words).union(filter(None, self.TRACE.split(",")))

    def _derive(self, looking: int) -> None:
        object.__setattr__(self, "tracing", self._words())
        asked = self.checks_passes or any(getattr(self, n) for n in LOOKING) or self.tracing & COMPILING_WORDS
        object.__setattr__(self, "looking", looking if asked else 0)
        steered = (self.SIMPLIFY, self.DISABLE)
        object.__setattr__(
            self, "choices", (self.NOOPT, self.BEAM, self.TF32, self.EMULATE_UNITS, *steered, self.looking)
        )
        steering = (*(getattr(self, name) for name in STEERING), self.looking)
        object.__setattr__(self, "steering", _steerings.setdefault(steering, steering))


settings = Settings(dict(os.environ))


class Context(ContextDecorator):
    """Set some settings for a `with` block or a decorated function, and restore them after it, whatever happens.

    `@Context(TRAINING=1)` stands above a training step. All names and values are checked before any is set: raises
    SettingError. One Context may be entered again while it is active.

    >>> with Context(THREADS=1, NOOPT=1):
    ...     settings.THREADS, (Tensor([1.0]) + 1).tolist()
    (1, [2.0])
    """

    def __init__(self, **values: int | str) -> None:
        self._values = {name: find_setting(name).check(value) for name, value in values.items()}
        self._saved: list[tuple[int, dict[str, int | str]]] = []

    def __enter__(self) -> "Context":
        self._saved.append((settings.looking, {name: getattr(settings, name) for name in self._values}))
        for name, value in self._values.items():
            setattr(settings, name, value)
        return self

    def __exit__(self, *exc_info: object) -> None:
        looking, values = self._saved.pop()
        for name, value in values.items():
            setattr(settings, name, value)
        settings._derive(looking)  # what was compiled before the block is known again
