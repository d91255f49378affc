"""Load a relocatable ELF64 object into executable memory of this process.

What it is for: machine code straight from a code generator, or from a cache of its objects, becomes callable without
a linker, a compiler, a temporary file or a dynamic library. Thousands of small kernels share the pages of one arena.

What it does not do: shared objects, thread-local storage, constructors, unwind tables, debug sections, COMMON symbols.
It resolves external symbols only from the mapping that the caller passes. It does not unload: an image lives as long as
the process, because an address inside of it may still be in use.

Invariant: every byte of an object is checked before it is used. A malformed object raises `ObjectFileError`, leaves the
arena unchanged, and never touches memory outside of its own reservation.

Sources: the ELF-64 object file format, the x86-64 psABI, and ELF for the Arm 64-bit Architecture (AAELF64).
"""

import os
import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, NoReturn

from monolect.backend.common.host.arena import PAGE_BYTES, align_up, executable_memory
from monolect.base.errors import ObjectFileError

X86_64: Final = 62
AARCH64: Final = 183
MAX_IMAGE_BYTES: Final = 64 << 20  # far above any kernel; a corrupt section size beyond it reserves no memory

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELA: Final = struct.Struct("<QQq")
_MASK: Final = (1 << 64) - 1

_SHT_PROGBITS, _SHT_SYMTAB, _SHT_STRTAB, _SHT_RELA, _SHT_NOBITS, _SHT_REL = 1, 2, 3, 4, 8, 9
_SHT_CONSTRUCTORS: Final = (14, 15, 16)
_SHF_WRITE, _SHF_ALLOC, _SHF_TLS = 1, 2, 0x400
_SHN_UNDEF, _SHN_ABS, _SHN_RESERVED = 0, 0xFFF1, 0xFF00
_STB_LOCAL, _STT_NOTYPE, _STT_FUNC, _STT_SECTION, _STT_TLS, _STT_IFUNC = 0, 0, 2, 3, 6, 10

_STUB_BYTES: Final = 16
_GOT_BYTES: Final = 8


class Section(NamedTuple):
    """One section header; its name is resolved, and its range is checked against the file."""

    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int

    @property
    def is_loaded(self) -> bool:
        unwind_or_note = self.name == ".eh_frame" or self.name.startswith(".note")
        return bool(self.flags & _SHF_ALLOC) and self.kind in (_SHT_PROGBITS, _SHT_NOBITS) and not unwind_or_note


class Symbol(NamedTuple):
    """One symbol; `value` is an offset into section number `section`."""

    name: str
    binding: int
    kind: int
    section: int
    value: int


class Relocation(NamedTuple):
    """One relocation, which patches the bytes at `offset` of section number `section`."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


class ElfObject(NamedTuple):
    """A parsed and checked object before it is loaded."""

    data: bytes
    machine: int
    sections: list[Section]
    symbols: list[Symbol]
    relocations: list[Relocation]


class Layout(NamedTuple):
    """Offsets of all parts in a read-only region (code, constants, stubs, GOT) and a writable region."""

    offsets: dict[int, tuple[bool, int]]  # section number -> (is in the writable region, offset there)
    stubs: dict[int, int]  # symbol number -> offset of its jump stub in the read-only region
    got: dict[int, int]  # symbol number -> offset of its address slot in the read-only region
    code_bytes: int
    data_bytes: int
    align: int  # of both regions


class Image:
    """An object in executable memory; all addresses in it stay valid until the process ends."""

    __slots__ = ("symbols",)

    def __init__(self, symbols: dict[str, int]) -> None:
        self.symbols = symbols

    def address(self, symbol: str) -> int:
        """Return the address of the global function `symbol`. Raises ObjectFileError if the object lacks it."""
        try:
            return self.symbols[symbol]
        except KeyError:
            raise ObjectFileError(f"no function {symbol!r} in the object; it defines {sorted(self.symbols)}") from None


# ---- reading ---------------------------------------------------------------------------------------------------------


def _fail(message: str) -> NoReturn:
    raise ObjectFileError(f"malformed or unsupported object: {message}")


def _extent(data: bytes, offset: int, size: int, what: str) -> bytes:
    if offset + size > len(data):
        _fail(f"{what} at {offset}+{size} reaches past the end of the file, {len(data)} bytes")
    return data[offset : offset + size]


def _name(table: bytes, offset: int) -> str:
    end = table.find(b"\0", offset)
    if offset >= len(table) or end < 0:
        _fail(f"name at {offset} is outside of its string table, {len(table)} bytes")
    try:
        return table[offset:end].decode()
    except UnicodeDecodeError:
        _fail(f"name at {offset} is not UTF-8")


def parse_object(data: bytes) -> ElfObject:
    """Parse and check a relocatable ELF64 little-endian object. Raises ObjectFileError for any other file."""
    if len(data) < _HEADER.size:
        _fail(f"{len(data)} bytes cannot hold an ELF header")
    ident, kind, machine, _, _, _, table, _, _, _, _, entry, count, names = _HEADER.unpack_from(data)
    if ident[:6] != b"\x7fELF\x02\x01" or kind != 1:
        _fail("not a relocatable ELF64 little-endian file")
    if machine not in (X86_64, AARCH64):
        _fail(f"machine {machine}, expected x86-64 or aarch64")
    if entry != _SECTION.size or not 0 < count < _SHN_RESERVED or names >= count:
        _fail(f"section table of {count} entries of {entry} bytes, names in entry {names}")
    rows = list(_SECTION.iter_unpack(_extent(data, table, count * entry, "section table")))
    name_table = _extent(data, rows[names][4], rows[names][5], "section names")
    sections = [_section(data, row, name_table) for row in rows]
    symbols = _symbols(data, sections)
    return ElfObject(data, machine, sections, symbols, _relocations(data, sections, len(symbols)))


def _section(data: bytes, row: tuple[int, ...], names: bytes) -> Section:
    section = Section(_name(names, row[0]), row[1], row[2], row[4], row[5], row[6], row[7], row[8] or 1)
    if section.kind not in (0, _SHT_NOBITS) and section.offset + section.size > len(data):
        _fail(f"section {section.name} reaches past the end of the file")
    if section.is_loaded and (section.align & (section.align - 1) or section.align > PAGE_BYTES):
        _fail(f"section {section.name} has alignment {section.align}, expected a power of two up to {PAGE_BYTES}")
    if section.flags & _SHF_ALLOC and (section.flags & _SHF_TLS or section.kind in _SHT_CONSTRUCTORS):
        _fail(f"section {section.name}: thread-local storage and constructors are not supported")
    return section


def _symbols(data: bytes, sections: list[Section]) -> list[Symbol]:
    tables = [section for section in sections if section.kind == _SHT_SYMTAB]
    if len(tables) != 1 or tables[0].size % _SYMBOL.size:
        _fail("expected one symbol table of whole entries")
    table = tables[0]
    if table.link >= len(sections) or sections[table.link].kind != _SHT_STRTAB:
        _fail("the symbol table names no string table")
    names = data[sections[table.link].offset :][: sections[table.link].size]
    symbols = []
    for name, info, _, index, value, _ in _SYMBOL.iter_unpack(data[table.offset : table.offset + table.size]):
        symbol = Symbol(_name(names, name), info >> 4, info & 15, index, value)
        if _SHN_UNDEF < index < _SHN_RESERVED and (index >= len(sections) or value > sections[index].size):
            _fail(f"symbol {symbol.name!r} is outside of the object's sections")
        if symbol.kind in (_STT_TLS, _STT_IFUNC):
            _fail(f"symbol {symbol.name!r} is thread-local or resolved at load time")
        symbols.append(symbol)
    return symbols


def _relocations(data: bytes, sections: list[Section], n_symbols: int) -> list[Relocation]:
    result = []
    for table in sections:
        if table.kind not in (_SHT_RELA, _SHT_REL):
            continue
        if table.info >= len(sections) or table.size % _RELA.size:
            _fail(f"relocation table {table.name} names no section or holds a partial entry")
        if not sections[table.info].is_loaded:
            continue
        if table.kind == _SHT_REL:
            _fail(f"relocation table {table.name} has no addends")
        for offset, info, addend in _RELA.iter_unpack(data[table.offset : table.offset + table.size]):
            if info >> 32 >= n_symbols:
                _fail(f"relocation at {table.name}+{offset} names symbol {info >> 32} of {n_symbols}")
            if info & 0xFFFFFFFF:  # type 0 is R_NONE
                result.append(Relocation(table.info, offset, info & 0xFFFFFFFF, info >> 32, addend))
    return result


# ---- layout ----------------------------------------------------------------------------------------------------------


def plan_layout(obj: ElfObject) -> Layout:
    """Assign every loaded section, jump stub and GOT slot an offset in the read-only or the writable region."""
    ends = [0, 0]
    offsets = {}
    for index, section in enumerate(obj.sections):
        if not section.is_loaded:
            continue
        writable = bool(section.flags & _SHF_WRITE)
        offset = align_up(ends[writable], section.align)
        offsets[index] = (writable, offset)
        ends[writable] = offset + section.size
        if ends[writable] > MAX_IMAGE_BYTES:
            _fail(f"an image of more than {MAX_IMAGE_BYTES} bytes")
    branches, slots = _INDIRECT_KINDS[obj.machine]
    stubs: dict[int, int] = {}
    got: dict[int, int] = {}
    code_bytes = align_up(ends[0], _STUB_BYTES)
    for relocation in obj.relocations:
        number = relocation.symbol
        if relocation.kind in branches and obj.symbols[number].section == _SHN_UNDEF and number not in stubs:
            stubs[number] = code_bytes  # an external may be out of the range of a branch
            code_bytes += _STUB_BYTES
    for relocation in obj.relocations:
        if relocation.kind in slots and relocation.symbol not in got:
            got[relocation.symbol] = code_bytes
            code_bytes += _GOT_BYTES
    align = max([64, *(obj.sections[index].align for index in offsets)])
    return Layout(offsets, stubs, got, code_bytes, ends[1], align)


def link(obj: ElfObject, layout: Layout, code_base: int, data_base: int, externals: Mapping[str, int]) -> "Linked":
    """Return the bytes of both regions, relocated for the two base addresses, and the addresses of all symbols.

    `externals` maps names of undefined symbols to addresses.
    """
    bases = (code_base, data_base)
    regions = (bytearray(layout.code_bytes), bytearray(layout.data_bytes))
    for index, (writable, offset) in layout.offsets.items():
        section = obj.sections[index]
        if section.kind == _SHT_PROGBITS:
            regions[writable][offset : offset + section.size] = obj.data[section.offset :][: section.size]
    used = {relocation.symbol for relocation in obj.relocations}
    addresses: dict[int, int] = {}
    for number, symbol in enumerate(obj.symbols):
        if symbol.section in layout.offsets:
            writable, offset = layout.offsets[symbol.section]
            addresses[number] = bases[writable] + offset + symbol.value
        elif number in used:
            addresses[number] = _outside(symbol, externals)
    stub = _STUBS[obj.machine]
    for number, offset in layout.stubs.items():
        regions[0][offset : offset + _STUB_BYTES] = stub(addresses[number])
    for number, offset in layout.got.items():
        struct.pack_into("<Q", regions[0], offset, addresses[number])
    for relocation in obj.relocations:
        _relocate(obj, layout, relocation, regions, bases, addresses)
    return Linked(regions[0], regions[1], addresses)


class Linked(NamedTuple):
    """Relocated bytes of the two regions, and the address of each symbol by its number."""

    code: bytearray
    data: bytearray
    addresses: dict[int, int]


def _outside(symbol: Symbol, externals: Mapping[str, int]) -> int:
    if symbol.section == _SHN_ABS:
        return symbol.value
    if symbol.section != _SHN_UNDEF:
        _fail(f"symbol {symbol.name!r} is in section {symbol.section:#x}, which is not loaded")
    address = externals.get(symbol.name)
    if address is None:
        raise ObjectFileError(f"undefined symbol {symbol.name!r}; known externals: {sorted(externals)}")
    return address & _MASK


def _x86_stub(address: int) -> bytes:
    return b"\xff\x25\x00\x00\x00\x00" + address.to_bytes(8, "little") + b"\xcc\xcc"  # jmp *[rip + 0]


def _arm_stub(address: int) -> bytes:
    return struct.pack("<IIQ", 0x58000050, 0xD61F0200, address)  # ldr x16, .+8; br x16


_STUBS: Final[dict[int, Callable[[int], bytes]]] = {X86_64: _x86_stub, AARCH64: _arm_stub}


# ---- relocating ------------------------------------------------------------------------------------------------------
# A relocation stores S + A or S + A - P. S is the address of the symbol, or of its stub or GOT slot for some kinds; A,
# the addend; P, the address of the patched bytes. Kinds of data: kind -> (struct format, whether P is subtracted).
# Kinds of aarch64 instructions: kind -> (way to patch the immediate, binary logarithm of the access size).

_X86_KINDS: Final[dict[int, tuple[str, bool]]] = {
    1: ("<Q", False),  # R_X86_64_64
    2: ("<i", True),  # PC32
    4: ("<i", True),  # PLT32
    9: ("<i", True),  # GOTPCREL
    10: ("<I", False),  # 32
    11: ("<i", False),  # 32S
    24: ("<Q", True),  # PC64
    41: ("<i", True),  # GOTPCRELX
    42: ("<i", True),  # REX_GOTPCRELX
}
_ARM_DATA_KINDS: Final[dict[int, tuple[str, bool]]] = {
    257: ("<Q", False),  # R_AARCH64_ABS64
    258: ("<I", False),  # ABS32
    260: ("<Q", True),  # PREL64
    261: ("<i", True),  # PREL32
}
_ARM_CODE_KINDS: Final[dict[int, tuple[str, int]]] = {
    275: ("page", 0),  # ADR_PREL_PG_HI21
    277: ("low", 0),  # ADD_ABS_LO12_NC
    278: ("low", 0),  # LDST8_ABS_LO12_NC
    284: ("low", 1),  # LDST16
    285: ("low", 2),  # LDST32
    286: ("low", 3),  # LDST64
    299: ("low", 4),  # LDST128
    282: ("branch", 0),  # JUMP26
    283: ("branch", 0),  # CALL26
    311: ("page", 0),  # ADR_GOT_PAGE
    312: ("low", 3),  # LD64_GOT_LO12_NC
}
_DATA_KINDS: Final = {X86_64: _X86_KINDS, AARCH64: _ARM_DATA_KINDS}
_INDIRECT_KINDS: Final = {X86_64: ((4,), (9, 41, 42)), AARCH64: ((282, 283), (311, 312))}  # kinds for (stub, GOT slot)


def _relocate(
    obj: ElfObject,
    layout: Layout,
    relocation: Relocation,
    regions: tuple[bytearray, bytearray],
    bases: tuple[int, int],
    addresses: dict[int, int],
) -> None:
    section, offset, kind, number, addend = relocation
    writable, start = layout.offsets[section]
    target = addresses[number]
    branches, slots = _INDIRECT_KINDS[obj.machine]
    if kind in slots:
        target = bases[0] + layout.got[number]
    elif kind in branches:
        target = bases[0] + layout.stubs[number] if number in layout.stubs else target
    data_kind = _DATA_KINDS[obj.machine].get(kind)
    width = struct.calcsize(data_kind[0]) if data_kind else 4
    if offset + width > obj.sections[section].size:
        _fail(f"relocation at {obj.sections[section].name}+{offset} reaches past its section")
    address = bases[writable] + start + offset
    try:
        if data_kind:
            value = target + addend - (address if data_kind[1] else 0)
            value = value & _MASK if data_kind[0] == "<Q" else value
            struct.pack_into(data_kind[0], regions[writable], start + offset, value)
        else:
            _patch_arm(obj.machine, kind, regions[writable], start + offset, target + addend, address)
    except struct.error:
        _fail(f"symbol {obj.symbols[number].name!r} is out of reach of relocation type {kind}")


def _patch_arm(machine: int, kind: int, region: bytearray, offset: int, value: int, address: int) -> None:
    """Patch the immediate of the aarch64 instruction at `offset` of `region`, which will be at `address`.

    Raises struct.error if the value does not fit.
    """
    if machine != AARCH64 or kind not in _ARM_CODE_KINDS or address & 3:
        _fail(f"relocation type {kind} of machine {machine}, at an address of {address & 3} modulo 4, is not supported")
    how, scale = _ARM_CODE_KINDS[kind]
    word = struct.unpack_from("<I", region, offset)[0]
    if how == "branch":
        word = word & 0xFC000000 | _signed_field(value - address, 28, 2)
    elif how == "page":
        pages = _signed_field((value >> 12) - (address >> 12), 21, 0)
        word = word & 0x9F00001F | (pages & 3) << 29 | (pages >> 2) << 5
    else:
        if value & ((1 << scale) - 1):
            raise struct.error  # the immediate counts in units of the access size
        word = word & ~(0xFFF << 10) | (value & 0xFFF) >> scale << 10
    struct.pack_into("<I", region, offset, word)


def _signed_field(value: int, bits: int, shift: int) -> int:
    """Return `value >> shift` in two's complement of `bits - shift` bits, as an unsigned number.

    Raises struct.error if `value` needs more than `bits` bits or is no multiple of `1 << shift`.
    """
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1) or value & ((1 << shift) - 1):
        raise struct.error
    return (value >> shift) & ((1 << (bits - shift)) - 1)


# ---- loading ---------------------------------------------------------------------------------------------------------

_MACHINES: Final = {"x86_64": X86_64, "amd64": X86_64, "aarch64": AARCH64, "arm64": AARCH64}
_HOST_MACHINE: Final = _MACHINES.get(os.uname().machine.lower()) if hasattr(os, "uname") else None


def load_object(obj: bytes, externals: Mapping[str, int] = MappingProxyType({})) -> Image:
    """Load an object file for this machine into executable memory, which is never freed, and return its Image.

    `externals` maps names of undefined symbols to addresses. Raises ObjectFileError if the object is malformed or for
    another machine, if a symbol is undefined, or if the system refuses memory that is both writable and executable.
    """
    parsed = parse_object(obj)
    if parsed.machine != _HOST_MACHINE:
        _fail(f"machine {parsed.machine} is not this machine, {_HOST_MACHINE}")
    layout = plan_layout(parsed)
    addresses: dict[int, int] = {}

    def link_at(code: int, data: int) -> tuple[bytearray, bytearray]:
        linked = link(parsed, layout, code, data, externals)
        addresses.update(linked.addresses)
        return linked.code, linked.data

    executable_memory.install(layout.code_bytes, layout.data_bytes, layout.align, link_at)
    symbols = {}
    for number, symbol in enumerate(parsed.symbols):
        if symbol.binding != _STB_LOCAL and symbol.kind == _STT_FUNC and number in addresses:
            if symbol.section != _SHN_UNDEF:
                symbols[symbol.name] = addresses[number]
    return Image(symbols)


__all__ = [
    "AARCH64",
    "ElfObject",
    "Image",
    "Layout",
    "Linked",
    "Relocation",
    "Section",
    "Symbol",
    "X86_64",
    "link",
    "load_object",
    "parse_object",
    "plan_layout",
]
