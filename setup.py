"""The part of the build that pyproject.toml cannot say: modules that mypyc compiles, where somebody asks for it.

    pip install . '.[compiled]' && MONOLECT_COMPILED=1 pip install --no-build-isolation .

Without MONOLECT_COMPILED nothing here happens and the install is plain Python. `make compiled` builds in a copy under
build/, so that no compiled module is ever found beside a source that is edited.
"""

import os
import sys
import time
from pathlib import Path

from setuptools import setup

NODE = "monolect___ir___uop___UOpObject"
FIELDS = ("op", "src", "arg", "tag", "dtype", "shape", "origin", "storage")
DERIVED = ("_min_max", "_ranges", "_placement", "_linear", "_sizes")


def extensions() -> list:
    """The modules listed in pyproject.toml, as C."""
    import tomllib

    from mypyc.build import mypycify

    modules = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["tool"]["monolect"]["compiled"]
    files = [m.replace(".", "/") + ".py" for m in modules]
    made = mypycify(files, opt_level="1", debug_level="0", multi_file=True, group_name="monolect")
    complete_node()
    return made


def complete_node() -> None:
    """What mypyc cannot say of a native class: nodes have weak references and are compared by identity, and Python code
    reads their fields as it reads slots, which is what its interpreter has a short way for.
    """
    members = "".join(f'{{"{f}", T_OBJECT_EX, offsetof({NODE}, _{f}), 0, NULL}}, ' for f in FIELDS + DERIVED)
    replace(f"}} {NODE};", f"    PyObject *weak_list;\n}} {NODE};")
    members += f'{{"__weakref__", T_OBJECT, offsetof({NODE}, weak_list), READONLY, NULL}}, '
    table, size = "static PyTypeObject CPyType_uop___UOp_template_ = {", f".tp_basicsize = sizeof({NODE}),"
    replace(table, f"static PyMemberDef UOp_members[] = {{{members}{{0}}}};\n{table}")
    slots = f".tp_weaklistoffset = offsetof({NODE}, weak_list), .tp_members = UOp_members,"
    replace(size, f"{size} {slots} .tp_hash = (hashfunc)_Py_HashPointer,")
    begin = "CPy_TRASHCAN_BEGIN(self, uop___UOp_dealloc)"
    replace(begin, f"{begin}\nif (self->weak_list != NULL) PyObject_ClearWeakRefs((PyObject *)self);")


def replace(old: str, new: str) -> None:
    """Replace the one place in the generated C that reads `old`; another mypyc may write another text."""
    found = [p for p in sorted(Path("build").rglob("*.[ch]")) if old in p.read_text(encoding="utf-8")]
    if len(found) != 1 or found[0].read_text(encoding="utf-8").count(old) != 1:
        sys.exit(f"setup.py does not know the C of this mypyc: {len(found)} files have {old!r}")
    found[0].write_text(found[0].read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


if os.environ.get("MONOLECT_COMPILED"):
    start = time.monotonic()
    setup(ext_modules=extensions())
    print(f"compiled by mypyc in {time.monotonic() - start:.0f} s")
else:
    setup()
