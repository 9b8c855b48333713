#!/usr/bin/env bash
# Build the sdist, and the wheel from it, and use the wheel where there is no compiler:
#
#     tools/release/check_wheel.sh [WHEEL]
#
# 1. The sdist; from it the wheel, without an index: with the packages that [build-system] names, and nothing else. These
#    two steps are left out if WHEEL is given, such as one that cibuildwheel made.
# 2. The C library and the stable ABI that the wheel needs, by auditwheel and abi3audit; the core's instruction sets.
# 3. On x86-64, pip finds versions of everything that penstock[all] needs, as wheels alone: up to Python 3.12.
# 4. In an environment with NumPy alone: penstock.replay.
# 5. In an empty environment: pip install, CartPole solved and scored, the dashboard.
#
# PYTHON is the Python that makes and uses the wheel, python3 by default. OUT, if set, is a new folder for sdist and wheel.
# All else lies in a folder of its own in /tmp, which is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/../.."
checkout=$PWD
work=$(mktemp --directory)
trap 'rm -rf "$work"' EXIT
python=$(command -v "${PYTHON:-python3}")
if [ -n "${OUT:-}" ]; then mkdir "$OUT"; else OUT=$work/dist; mkdir "$OUT"; fi
step() { printf '\n== %s (%s s)\n' "$1" "$SECONDS"; }
environment() { "$python" -m venv "$work/$1"; }
# Only what the environment itself has is on its PATH: no compiler, no cmake, no git.
within() { local name=$1; shift; (cd "$work" && PATH="$work/$name/bin" CC='' CXX='' "$@"); }
lacks() { for program; do if command -v "$program"; then return 1; fi; done; }

environment tools
tools=$work/tools/bin
"$tools/python" -m pip install -qq --upgrade pip build auditwheel abi3audit
if [ $# = 0 ]; then
  step "sdist"
  readarray -t needed < <("$python" -c '
import sys, tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")')
  "$tools/python" -m pip install -qq "${needed[@]}"
  "$tools/python" -m build --no-isolation --sdist --outdir "$OUT" . > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  step "wheel of the sdist, without an index"
  PATH="$tools:$PATH" "$tools/python" -m pip wheel -qq --no-index --no-deps --no-build-isolation \
    --config-settings build-dir="$work/core" --wheel-dir "$OUT" "$OUT"/penstock-*.tar.gz
  set -- "$OUT"/penstock-*.whl
  ls -l "$OUT"
  step "instruction sets"
  "$tools/python" "$checkout/tools/release/check_instructions.py" "$work"/core/_native*.so
fi
wheel=$(realpath "$1")

step "what the wheel needs of a system"
"$tools/auditwheel" show "$wheel"
case $wheel in *-abi3-*) "$tools/abi3audit" --strict --report "$wheel" ;; esac

step "versions for penstock[all]"
if [ "$(uname -m)" = x86_64 ]; then
  "$tools/python" -m pip install -qq --dry-run --ignore-installed --only-binary :all: --report "$work/all.json" \
    "${wheel}[all]"
  "$tools/python" -c '
import json, sys
found = {each["metadata"]["name"]: each["metadata"]["version"] for each in json.load(open(sys.argv[1]))["install"]}
print(len(found), "packages:", *(f"{name} {found[name]}" for name in ("numpy", "torch", "gymnasium")), sep=" ")' \
    "$work/all.json"
else
  echo "left out: Box2D has no wheel for $(uname -m)"
fi

step "penstock.replay with NumPy alone"
environment replay
within replay python -m pip install -qq numpy
within replay python -m pip install -qq --no-deps "$wheel"
within replay python "$checkout/tools/release/use_wheel.py" replay

step "CartPole in an empty environment"
environment empty
within empty lacks cc c++ gcc g++ clang cmake git
began=$SECONDS
within empty python -m pip install -qq "${wheel}[dashboard]"
installed=$SECONDS
within empty penstock train appo --env CartPole-v1 --target-return 475 --seed 1 --run-dir solved > "$work/log" ||
  { cat "$work/log"; exit 1; }
printf 'pip install to CartPole solved: %s s, of which pip install %s s\n' $((SECONDS - began)) $((installed - began))
within empty penstock eval solved --episodes 20
within empty python "$checkout/tools/release/use_wheel.py" dashboard
step "all passed"
