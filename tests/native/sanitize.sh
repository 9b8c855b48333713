#!/bin/sh
# Run the native core under sanitizers: `make sanitize`. All that is built and copied lies in build/sanitize.
#
# 1. Threads, then address and undefined behaviour: tests/native/hammer.cpp, which needs no Python.
# 2. Address and undefined behaviour: tests of ipc and replay, with a core that is built for it. SHORT=1 leaves these out.
set -eu
python=$1
cxx=${CXX:-g++}
out=$PWD/build/sanitize
tree=$out/tree
flags="-std=c++20 -O1 -g -fno-omit-frame-pointer -Wall -Wextra -Isrc -pthread"

mkdir -p "$tree"
# -Wno-tsan: GCC warns that fences are not followed; the words beside them are atomic, and copies are: src/shared_copy.h.
$cxx $flags -Wno-tsan -fsanitize=thread tests/native/hammer.cpp -o "$out/hammer-thread"
TSAN_OPTIONS=halt_on_error=1 "$out/hammer-thread" "${SECONDS_OF_EACH_PART:-1}"
$cxx $flags -fsanitize=address,undefined -fno-sanitize-recover=all tests/native/hammer.cpp -o "$out/hammer-address"
"$out/hammer-address" "${SECONDS_OF_EACH_PART:-1}"

if [ -n "${SHORT:-}" ]; then exit 0; fi
"$python" -m pip install --quiet --no-deps --upgrade --target "$tree" -C build-dir="$out/core" \
  -C cmake.build-type=RelWithDebInfo -C cmake.define.PENSTOCK_SANITIZE=address,undefined .
cp -r tests pyproject.toml "$tree"
# The installed package must not come first: an editable one finds its modules before any path is looked at.
echo 'import sys; sys.meta_path[:] = [each for each in sys.meta_path if "editable" not in type(each).__module__]' \
  > "$tree/sitecustomize.py"
export PYTHONPATH="$tree"
# The interpreter is not built with the sanitizer, so that the library has to be there first; its own leaks are not ours.
LD_PRELOAD="$($cxx -print-file-name=libasan.so) $($cxx -print-file-name=libstdc++.so)"
export LD_PRELOAD ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
cd "$tree"
"$python" -c 'import penstock._native as core, sys; sys.exit(None if core.__file__.startswith(sys.argv[1]) else core.__file__)' "$tree"
exec "$python" -m pytest -q -p no:cacheprovider tests/ipc/test_ring.py tests/ipc/test_slot_table.py \
  tests/ipc/test_node_slots.py tests/ipc/test_weights_block.py tests/ipc/test_rows.py tests/replay/test_sum_tree.py \
  tests/replay/test_buffer.py tests/replay/test_frames.py tests/replay/test_n_step.py tests/replay/test_sequences.py \
  tests/replay/test_eviction.py
