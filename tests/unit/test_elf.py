"""The object loader: relocations that run, relocations of the other machine decoded by hand, and hostile input."""

import ctypes
import random
import struct
import subprocess
import sys
from collections.abc import Callable

import pytest

from monolect.backend.common.host import arena, elf
from monolect.backend.common.host.elf import AARCH64, X86_64, link, load_object, parse_object, plan_layout
from monolect.backend.common.llvm.compile import Compiler
from monolect.base.errors import ObjectFileError

# Every kind of reference: a constant pool, local and global data, zeroed data, a table of pointers, local and external
# calls, and the address of an external.
PROGRAM = """
@table = internal constant [3 x ptr] [ptr @one, ptr @two, ptr @hook]
@shared = global i64 40
@zeroed = internal global [100 x i64] zeroinitializer
@text = internal constant [8 x i8] c"constant"
declare i64 @hook(i64)
define internal i64 @one(i64 %x) noinline {
  %r = add i64 %x, 1
  ret i64 %r
}
define i64 @two(i64 %x) noinline {
  %r = call i64 @one(i64 %x)
  %s = add i64 %r, 1
  ret i64 %s
}
define double @constant(double %x) {
  %r = fmul double %x, 3.25
  ret double %r
}
define i64 @bump(i64 %by) {
  %a = load i64, ptr @shared
  %b = add i64 %a, %by
  store i64 %b, ptr @shared
  %p = getelementptr i64, ptr @zeroed, i64 7
  %c = load i64, ptr %p
  %d = add i64 %c, 1
  store i64 %d, ptr %p
  %e = add i64 %b, %d
  ret i64 %e
}
define i64 @through_table(i64 %i, i64 %x) {
  %p = getelementptr ptr, ptr @table, i64 %i
  %f = load ptr, ptr %p
  %r = call i64 %f(i64 %x)
  ret i64 %r
}
define i64 @external(i64 %x) {
  %r = call i64 @hook(i64 %x)
  ret i64 %r
}
define ptr @external_address() { ret ptr @hook }
define i8 @letter(i64 %i) {
  %p = getelementptr i8, ptr @text, i64 %i
  %r = load i8, ptr %p
  ret i8 %r
}
"""
HOOK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: x * 10)
HOOK_ADDRESS = ctypes.cast(HOOK, ctypes.c_void_p).value or 0
EXTERNALS = {"hook": HOOK_ADDRESS}


@pytest.fixture(scope="module")
def program() -> bytes:
    return Compiler().compile(PROGRAM)


@pytest.fixture(scope="module")
def arm_program() -> bytes:
    return Compiler("aarch64").compile(PROGRAM)


def _function(image: elf.Image, name: str, n_arguments: int, kind: type = ctypes.c_int64) -> Callable[..., int]:
    return ctypes.CFUNCTYPE(kind, *[kind] * n_arguments)(image.address(name))


def test_loaded_functions_run(program: bytes) -> None:
    image = load_object(program, EXTERNALS)
    assert _function(image, "two", 1)(5) == 7
    assert _function(image, "constant", 1, ctypes.c_double)(2.0) == 6.5
    assert [_function(image, "through_table", 2)(i, 5) for i in range(3)] == [6, 7, 50]
    assert _function(image, "external", 1)(12) == 120
    assert _function(image, "external_address", 0)() == HOOK_ADDRESS
    assert ctypes.CFUNCTYPE(ctypes.c_char, ctypes.c_int64)(image.address("letter"))(2) == b"n"


def test_images_have_data_of_their_own(program: bytes) -> None:
    first, second = (_function(load_object(program, EXTERNALS), "bump", 1) for _ in range(2))
    assert [first(2), first(0)] == [43, 44]
    assert second(2) == 43


def test_symbols_are_the_global_functions(program: bytes) -> None:
    image = load_object(program, EXTERNALS)
    names = {"two", "constant", "bump", "through_table", "external", "external_address", "letter"}
    assert set(image.symbols) == names
    assert all(image.address(name) == address for name, address in image.symbols.items())
    with pytest.raises(ObjectFileError, match="'one'"):
        image.address("one")


def test_undefined_symbol_is_named(program: bytes) -> None:
    with pytest.raises(ObjectFileError, match="undefined symbol 'hook'"):
        load_object(program)


def test_thousands_of_images_share_pages() -> None:
    obj = Compiler().compile("define i64 @f(i64 %x) {\n %y = mul i64 %x, 3\n ret i64 %y\n}")
    addresses = [load_object(obj).address("f") for _ in range(3000)]
    assert len(set(addresses)) == 3000
    assert len({address >> 20 for address in addresses}) <= 4
    assert all(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(7) == 21 for address in addresses[::100])


def test_image_larger_than_a_chunk() -> None:
    obj = Compiler().compile(
        "@big = internal global [400000 x i64] zeroinitializer\n"
        "define i64 @f(i64 %i) {\n %p = getelementptr i64, ptr @big, i64 %i\n %v = load i64, ptr %p\n"
        " %w = add i64 %v, 1\n store i64 %w, ptr %p\n ret i64 %w\n}"
    )
    function = _function(load_object(obj), "f", 1)
    assert [function(0), function(399_999), function(399_999)] == [1, 1, 2]


def test_failed_load_reserves_nothing(program: bytes) -> None:
    before = (arena.executable_memory.low, arena.executable_memory.high)
    with pytest.raises(ObjectFileError):
        load_object(program)
    assert (arena.executable_memory.low, arena.executable_memory.high) == before


def test_foreign_machine_is_refused(arm_program: bytes, program: bytes) -> None:
    foreign = arm_program if parse_object(program).machine == X86_64 else Compiler("x86_64").compile(PROGRAM)
    with pytest.raises(ObjectFileError, match="not this machine"):
        load_object(foreign, EXTERNALS)


# ---- aarch64, decoded by hand ----------------------------------------------------------------------------------------


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def _word(code: bytes, offset: int) -> int:
    return struct.unpack_from("<I", code, offset)[0]


def test_aarch64_relocations_decode_to_their_targets(arm_program: bytes) -> None:
    obj = parse_object(arm_program)
    assert obj.machine == AARCH64
    layout = plan_layout(obj)
    code_base, data_base, hook = 0x7F00_1234_5000, 0x7F00_1238_9040, 0x5555_0000_1238
    linked = link(obj, layout, code_base, data_base, {"hook": hook})
    pages: dict[str, int] = {}
    kinds = set()
    for section, offset, kind, number, addend in obj.relocations:
        writable, start = layout.offsets[section]
        region, base = (linked.data, data_base) if writable else (linked.code, code_base)
        place, target = base + start + offset, linked.addresses[number] + addend
        word = _word(region, start + offset)
        kinds.add(kind)
        if kind in (282, 283):
            reached = place + 4 * _signed(word & 0x3FFFFFF, 26)
            if obj.symbols[number].name == "hook":
                stub = reached - code_base
                assert linked.code[stub : stub + 8] == bytes.fromhex("5000005800021fd6")
                assert struct.unpack_from("<Q", linked.code, stub + 8)[0] == hook
            else:
                assert reached == target
        elif kind in (275, 311):
            pages["page"] = (place & -4096) + 4096 * _signed((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21)
            slot = code_base + layout.got[number] if kind == 311 else target
            assert pages["page"] == slot & -4096
        elif kind in elf._ARM_CODE_KINDS:
            slot = code_base + layout.got[number] if kind == 312 else target
            assert (word >> 10 & 0xFFF) << elf._ARM_CODE_KINDS[kind][1] == slot & 0xFFF
            if kind == 312:
                assert struct.unpack_from("<Q", linked.code, slot - code_base)[0] == linked.addresses[number]
        else:
            assert kind == 257
            assert struct.unpack_from("<Q", region, start + offset)[0] == target
    assert {257, 275, 311, 312} <= kinds and kinds & {277, 278, 286} and kinds & {282, 283}


def test_aarch64_branch_out_of_reach_is_refused() -> None:
    with pytest.raises(struct.error):
        elf._signed_field(1 << 27, 28, 2)
    with pytest.raises(struct.error):
        elf._signed_field(2, 28, 2)
    assert elf._signed_field(-4, 28, 2) == (1 << 26) - 1


# ---- malformed input: link for made-up addresses, never execute ------------------------------------------------------


def _link_only(data: bytes) -> None:
    obj = parse_object(data)
    link(obj, plan_layout(obj), 0x10_0000, 0x20_0000, {"hook": 0x30_0000})


def test_every_truncation_raises(program: bytes, arm_program: bytes) -> None:
    for data in (program, arm_program):
        _link_only(data)
        for length in range(len(data)):
            with pytest.raises(ObjectFileError):
                _link_only(data[:length])


@pytest.mark.parametrize("seed", range(4))
def test_random_damage_raises_or_links(program: bytes, arm_program: bytes, seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(500):
        damaged = bytearray(generator.choice((program, arm_program)))
        for _ in range(generator.choice((1, 1, 2, 8))):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        try:
            _link_only(bytes(damaged))
        except ObjectFileError:
            pass


def test_damaged_headers_raise_or_load(program: bytes) -> None:
    table = struct.unpack_from("<Q", program, 40)[0]
    generator = random.Random(7)
    for offset in [*range(64), *range(table, len(program))]:
        damaged = bytearray(program)
        damaged[offset] ^= 1 << generator.randrange(8)
        try:
            load_object(bytes(damaged), EXTERNALS)
        except ObjectFileError:
            pass


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"not an object" * 100, bytes(5000), b"\xff" * 5000])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(ObjectFileError):
        load_object(data)


def test_unsupported_features_are_refused() -> None:
    for ir in ("@t = thread_local global i64 1\ndefine ptr @f() { ret ptr @t }", "@c = common global i64 0"):
        obj = Compiler().compile(ir + "\ndefine i64 @g() { \n %v = load i64, ptr @" + ir[1] + "\n ret i64 %v }")
        with pytest.raises(ObjectFileError):
            load_object(obj, {"__tls_get_addr": HOOK_ADDRESS})


def test_refused_memory_is_a_clear_error() -> None:
    program = (
        "import monolect.backend.common.host.arena as arena\n"
        "def refuse(*a, **k): raise PermissionError('not allowed')\n"
        "arena.mmap.mmap = refuse\n"
        "try: arena.map_executable(4096)\n"
        "except arena.ObjectFileError as error: print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "writable and executable: not allowed" in result.stdout
