"""The page of deployment: its C compiles and runs, and in the browser an exported policy balances the pole."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

from bench.export import Kind, fresh_policy
from penstock.export import export_policy
from tests.browsing import resize, served
from tests.places import DOCS, ROOT
from tests.scripts import blocks

PAGE = (DOCS / "guides" / "deployment.md").read_text()
BROWSER = ROOT / "examples" / "browser"
PACKAGES = Path(sys.prefix) / "onnxruntime-web" / "node_modules"  # of tests/dashboard/set_up_browser.sh
AXE = Path(sys.prefix) / "axe" / "node_modules" / "axe-core" / "axe.min.js"
WEIGHTS = (0.1, 0.3, 3.0, 1.0)
"""Of a linear policy that balances the pole: right where their product with the observation is above 0."""

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]


@pytest.fixture(scope="module")
def policy():
    """A policy that balances the pole, without any training."""
    env = gym.make("CartPole-v1")
    found = fresh_policy(Kind("ppo", "linear", env.observation_space, env.action_space, {
        "hidden_sizes": (), "normalize_observations": False,
    }))  # fmt: skip
    with torch.no_grad():
        found.model.policy_head.bias.zero_()
        found.model.policy_head.weight.copy_(torch.tensor([[0.0] * 4, WEIGHTS]))
    return found


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_programs_in_c_compile_and_choose_as_the_policy_does(policy, tmp_path):
    export_policy(policy, tmp_path / "policy.c")
    program = blocks(PAGE, "c")
    (tmp_path / "main.c").write_text(program)
    lines = [line for line in blocks(PAGE, "bash").splitlines() if line.startswith(("cc ", "./"))]
    printed = [subprocess.run(shlex.split(line), cwd=tmp_path, check=True, capture_output=True, text=True).stdout
               for line in lines]  # fmt: skip
    (numbers,) = re.findall(r"observation\[4\] = {(.*)}", program)
    observation = np.array([float(number.strip().rstrip("f")) for number in numbers.split(",")], np.float32)
    side = ("left", "right")[policy.act(observation)]
    assert printed == ["", f"{side}\n", "", "10 golden observations, 0 numbers differ\n"]


@pytest.fixture(scope="module")
def address(policy, tmp_path_factory):
    """The example, with the policy and its packages."""
    if not (PACKAGES / "onnxruntime-web").is_dir():
        pytest.skip("onnxruntime-web is not installed: make browser")
    folder = tmp_path_factory.mktemp("site") / "browser"
    shutil.copytree(BROWSER, folder, ignore=shutil.ignore_patterns("node_modules", "policy.*"))
    (folder / "node_modules").symlink_to(PACKAGES)
    export_policy(policy, folder / "policy.onnx")
    with served(folder) as found:
        yield found


def counts(browser) -> dict[str, int]:
    return {name: int(browser.find_element("id", name).text) for name in ("step", "balanced", "fallen")}


@pytest.mark.long
def test_the_policy_balances_the_pole_in_the_browser_at_every_width(browser, address):
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get(address)
    WebDriverWait(browser, 60).until(lambda _: counts(browser)["step"] > 0)
    browser.execute_script("document.getElementById('speed').value = '25'")
    WebDriverWait(browser, 120).until(lambda _: counts(browser)["balanced"] >= 2)
    assert counts(browser)["fallen"] == 0

    def has_fallen(_):  # an episode that ends just then takes the pushes with it
        browser.execute_script("for (let n = 0; n < 8; n++) document.getElementById('left').click()")
        return counts(browser)["fallen"] >= 1

    WebDriverWait(browser, 60).until(has_fallen)
    for width in (390, 1400):
        resize(browser, width)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        if AXE.is_file():
            browser.execute_script(AXE.read_text())
            found = browser.execute_async_script("const done = arguments[0]; axe.run().then(done)")
            assert [each["id"] for each in found["violations"]] == []
    assert [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_the_simulation_in_the_browser_is_that_of_gymnasium(browser, address):
    browser.get(address)
    env = gym.make("CartPole-v1").unwrapped
    env.reset(seed=4)
    start, actions = [float(x) for x in env.state], [0, 1, 1, 0, 1, 1, 1, 0, 0, 1] * 2
    expected = []
    for action in actions:
        _, _, is_over, *_ = env.step(action)
        expected.append([*map(float, env.state), is_over])
    script = """
        const [state, actions, done] = arguments;
        import("./cartpole.js").then(({ step, isOver }) => {
            let now = state;
            done(actions.map((action) => [...(now = step(now, action)), isOver(now)]));
        });
    """
    found = browser.execute_async_script(script, start, actions)
    np.testing.assert_allclose(np.array(found, float), np.array(expected, float), rtol=1e-12, atol=1e-12)


def test_the_page_says_why_it_cannot_run_a_policy(browser, address, tmp_path):
    from selenium.webdriver.support.ui import WebDriverWait

    folder = tmp_path / "browser"
    shutil.copytree(BROWSER, folder, ignore=shutil.ignore_patterns("node_modules", "policy.*"))
    (folder / "node_modules").symlink_to(PACKAGES)
    with served(folder) as elsewhere:
        browser.get(elsewhere)
        found = WebDriverWait(browser, 60).until(lambda _: "cannot be run" in browser.find_element("id", "status").text)
    assert found
