# Installs what pages are tested with, where that can be done: Debian's Chromium, axe-core from npm, and from there what
# the page of examples/browser needs. It never fails. Without one of them its tests are skipped, and say so.
#
#     sh tests/dashboard/set_up_browser.sh VENV

AXE=4.14.1

if ! { command -v chromium && command -v chromedriver; } >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        export DEBIAN_FRONTEND=noninteractive
        { timeout 120 apt-get update -qq &&
            timeout 600 apt-get install -y -qq --no-install-recommends chromium chromium-driver; } >/dev/null 2>&1
    fi
    command -v chromedriver >/dev/null ||
        echo "tests of the dashboard in a browser will be skipped: apt-get install chromium chromium-driver"
fi

if ! [ -f "$1/axe/node_modules/axe-core/axe.min.js" ]; then
    command -v npm >/dev/null &&
        timeout 120 npm install --prefix "$1/axe" --no-audit --no-fund --ignore-scripts "axe-core@$AXE" >/dev/null 2>&1
    [ -f "$1/axe/node_modules/axe-core/axe.min.js" ] ||
        echo "the test of the dashboard's accessibility will be skipped: axe-core $AXE cannot be had from npm"
fi

if ! [ -d "$1/onnxruntime-web/node_modules/onnxruntime-web/dist" ]; then
    mkdir -p "$1/onnxruntime-web" && cp examples/browser/package.json "$1/onnxruntime-web"
    command -v npm >/dev/null &&
        timeout 300 npm install --prefix "$1/onnxruntime-web" --no-audit --no-fund --ignore-scripts >/dev/null 2>&1
    [ -d "$1/onnxruntime-web/node_modules/onnxruntime-web/dist" ] ||
        echo "the test of a policy in the browser will be skipped: onnxruntime-web cannot be had from npm"
fi
exit 0
