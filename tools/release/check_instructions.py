"""Refuse a native core that needs a newer processor than its wheel says.

    python tools/release/check_instructions.py LIBRARY...

LIBRARY is a native core with its symbols, such as that of the build folder: wheels have none. Instructions beyond the
baseline (x86-64-v2, or ARMv8-A with NEON) are legal only in versions of functions that are chosen at run time: those
that ``PENSTOCK_WIDE`` in src/functions.h makes. Output: the number of functions of each version. Exit code 1 names the
functions that break the rule, and the first such instruction of each.

Matrix products are those of torch, whose libraries choose among AVX2, AVX-512 and AMX by themselves.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

# tzcnt is missing: older processors run it as bsf, and compilers use it where both give the same.
BEYOND = {
    "x86-64": re.compile(
        r"v(?!erw?\b|err\b)|k(mov|and|or|xor|xnor|not|add|shift|unpck|test|ortest)|tile|tdp"  # AVX, AVX-512, AMX
        r"|(andn|bextr|blsi|blsmsk|blsr|bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx|lzcnt|movbe|adcx|adox)[lqw]?\b"
        r"|sha\d|sha\w*msg|aes|pclmul"
    ),
    # The operands of SVE and SME; lock-free counters of libgcc ask the processor before they use newer instructions.
    "aarch64": re.compile(r"\w+\s.*\b([zp]\d+[./]|za\d*[.\[])"),
}
CHOSEN = re.compile(r"\.(arch_x86_64_v[34])\b")


def instructions_of(library: Path) -> tuple[str, Iterator[tuple[str, str]]]:
    """Return the machine, and every instruction with the function that it is in."""
    head = _output("objdump", "--file-headers", str(library))
    found = re.search(r"architecture: (?:i386:)?([\w-]+)", head)
    if found is None or found[1] not in BEYOND:
        raise SystemExit(f"{library}: expected a library for one of {', '.join(BEYOND)}, found {found and found[1]}")
    if "no symbols" in _output("objdump", "--syms", str(library)):
        raise SystemExit(f"{library} has no symbols: give the library of the build folder")
    return found[1], _walk(_output("objdump", "--disassemble", "--no-show-raw-insn", str(library)))


def _walk(listing: str) -> Iterator[tuple[str, str]]:
    function = ""
    for line in listing.splitlines():
        if start := re.fullmatch(r"[0-9a-f]+ <(.+)>:", line):
            function = start[1]
        elif "\t" in line:
            yield function, line.split("\t", 1)[1]


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        raise SystemExit("objdump is missing: apt install binutils") from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(error.stderr.strip()) from None


def check(library: Path) -> bool:
    """Print the number of functions of each version, and those that break the rule; return whether there are none."""
    machine, instructions = instructions_of(library)
    versions: dict[str, str] = {}
    broken: dict[str, str] = {}
    for function, instruction in instructions:
        chosen = CHOSEN.search(function)
        versions[function] = chosen[1] if chosen else "baseline"
        if not chosen and BEYOND[machine].match(instruction):
            broken.setdefault(function, instruction)
    counts = Counter(versions.values())
    print(f"{library.name}, {machine}: " + ", ".join(f"{count} functions {name}" for name, count in counts.items()))
    for function, instruction in broken.items():
        print(f"beyond the baseline: {function}: {instruction}")
    return not broken


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    sys.exit(0 if all([check(Path(library)) for library in sys.argv[1:]]) else 1)
