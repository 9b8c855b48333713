# Installs what the dashboard is tested with, where that can be done: Debian's Chromium, and axe-core from npm.
# It never fails. Without Chromium or axe-core their tests are skipped, and say so.
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
exit 0
