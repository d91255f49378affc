"""The actions that the heuristic chooses for a corpus of kernels and targets, compared with what was reviewed.

`make choices` (or --update-golden) writes the file again; the change is then read as a diff. `make corpus` collects the
kernels again.
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.strategies import often

HERE = Path(__file__).parent
FILE = HERE / "choices.txt"
SHOWN = 20  # kernels of which a failure shows the difference


def by_kernel(text: str) -> dict[str, dict[str, list[str]]]:
    """Kernel -> target -> actions."""
    out: dict[str, dict[str, list[str]]] = {}
    for line in text.splitlines()[1:]:
        if not line.startswith("  "):
            out[line] = {}
            continue
        names, _, actions = line.strip().partition(": ")
        for group in names.split(", "):
            family, *more = group.split(" ")
            for name in [f"{family} {m}" for m in more] or [family]:
                out[[*out][-1]][name] = actions.split("; ")
    return out


def part(wanted: str, found: str, step: int, first: int) -> str:
    """What `choose` prints for this step and first kernel if the choices are those of `wanted`: of the targets those
    that `found` has.
    """
    seen = {t for ts in by_kernel(found).values() for t in ts}
    kernels = [*by_kernel(wanted).items()][first::step]
    rows = [(k, {t: a for t, a in ts.items() if t in seen}) for k, ts in kernels]
    lines = [[k, *(f"  {t}: {'; '.join(a)}" for t, a in ts.items())] for k, ts in rows]
    return "\n".join([wanted.partition("\n")[0], *(line for of_one in lines for line in of_one)]) + "\n"


def difference(wanted: str, found: str) -> list[str]:
    """What a person reads: for each kernel the targets whose actions changed, and the actions that differ."""
    old, new = by_kernel(wanted), by_kernel(found)
    first = [text.partition("\n")[0] for text in (wanted, found)]
    out = [f"- {first[0]}", f"+ {first[1]}"] if first[0] != first[1] else []
    out += [f"no longer in the corpus: {k}" for k in old.keys() - new.keys()]
    out += [f"new in the corpus: {k}" for k in new.keys() - old.keys()]
    changed = {k: [t for t in new[k] if new[k][t] != old[k].get(t)] for k in new if k in old}
    changed = {k: ts for k, ts in changed.items() if ts}
    of_target = Counter(t for ts in changed.values() for t in ts)
    out.append(f"{len(changed)} of {len(new)} kernels changed: " + ", ".join(f"{t} {n}" for t, n in of_target.items()))
    for k, ts in [*changed.items()][:SHOWN]:
        out.append(k)
        alike: dict[tuple[str, str], list[str]] = {}
        for t in ts:
            alike.setdefault(("; ".join(old[k].get(t, ["-"])), "; ".join(new[k][t])), []).append(t)
        for (was, now), names in alike.items():
            out += [f"  {', '.join(names)}", f"    - {was}", f"    + {now}"]
    return out


@pytest.fixture
def step(update_golden) -> int:
    """1 for all targets; in `make test` every third one."""
    return 1 if update_golden else often(3, 1)


@pytest.fixture
def first(step, start) -> int:
    """The number of the first kernel."""
    return start % step


@pytest.fixture
def found(step, first) -> str:
    """The choices, made by one fresh process."""
    root = str(HERE.parents[1])
    env = os.environ | {"PYTHONPATH": root, "NOOPT": "", "DEBUG": "0", "TRACE": "", "DISABLE": "", "BEAM": ""}
    command = [sys.executable, "-m", "tests.optimize.choose", str(step), str(first)]
    run = subprocess.run(command, env=env, cwd=root, capture_output=True)
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout.decode()


def test_choices(found, step, first, update_golden):
    """Those of every kernel for every target, in `make test` of every third one for every third one."""
    if update_golden:
        FILE.write_text(found, encoding="utf-8")
    wanted = FILE.read_text(encoding="utf-8")
    if step > 1:
        wanted = part(wanted, found, step, first)
    if found != wanted if step == 1 else [*by_kernel(found).items()] != [*by_kernel(wanted).items()]:
        pytest.fail("other choices (`make choices`, then review)\n" + "\n".join(difference(wanted, found)))


def test_what_the_choices_show():
    """What must not change even when the file is written again."""
    kernels = by_kernel(FILE.read_text(encoding="utf-8"))
    assert len(kernels) > 500
    assert {len(ts) for ts in kernels.values()} == {2, 11, 13}  # of a GPU, of a processor, of both
    product = kernels["matmul 1024 A·B #1: gemm (1024 x 1024, sum 1024)"]
    assert all("PACK 1" in actions for t, actions in product.items() if not t.startswith("h100"))
    assert "SPLIT 1 16 UPCAST" in product["zen5 x2"] and "SPLIT 1 8 UPCAST" in product["avx2 x1"]
    assert any(a.startswith("TC ") for a in product["h100-tf32"])
    assert not any(
        "THREAD" in a for ts in kernels.values() for t, actions in ts.items() if t.endswith(" x1") for a in actions
    )


def test_a_difference_can_be_read():
    old = "2 kernels\nadd (8)\n  zen5 x1 x2, h100: SPLIT 0 4 UPCAST; PACK 1\nsum (9)\n  zen5 x1: none\n"
    new = old.replace(
        "x1 x2, h100: SPLIT 0 4 UPCAST; PACK 1", "x1, h100: SPLIT 0 4 UPCAST; PACK 1\n  zen5 x2: SPLIT 0 8 UPCAST"
    )
    assert difference(old, new) == [
        "1 of 2 kernels changed: zen5 x2 1",
        "add (8)",
        "  zen5 x2",
        "    - SPLIT 0 4 UPCAST; PACK 1",
        "    + SPLIT 0 8 UPCAST",
    ]
