"""deploy/: shell that shellcheck accepts, manifests that their schemas accept, and flags that exist."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.commands import commands, read
from tests.places import ROOT

DEPLOY = ROOT / "deploy"
MANIFESTS = {path.name: yaml.safe_load(path.read_text()) for path in (DEPLOY / "kuberay").glob("*.yaml")}
GROUP = {"rayStartParams", "template"}
# Fields of ray.io/v1 that are used here, by the types of KubeRay 1.3.
CLUSTER = {"rayVersion", "enableInTreeAutoscaling", "autoscalerOptions", "headGroupSpec", "workerGroupSpecs"}
WORKERS = GROUP | {"groupName", "replicas", "minReplicas", "maxReplicas"}
JOB = {"entrypoint", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished", "backoffLimit", "rayClusterSpec"}


def cluster_of(name: str) -> dict:
    spec = MANIFESTS[name]["spec"]
    return spec.get("rayClusterSpec", spec)


def pods_of(name: str) -> list[dict]:
    cluster = cluster_of(name)
    return [group["template"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]


@pytest.mark.parametrize("script", sorted(DEPLOY.glob("*.sh")), ids=lambda path: path.name)
def test_shellcheck_finds_nothing_in_a_script(script):
    checker = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if checker is None:
        pytest.skip("shellcheck is in the extra dev")
    done = subprocess.run([checker, script], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_commands_in_the_scripts_have_flags_that_exist():
    found = [*commands(DEPLOY / "train.sh", "penstock"), *commands(DEPLOY / "train.sh", "exec penstock")]
    found = [command[command.index("penstock") :] for command in found]
    assert [command[1] for command in found] == ["resume", "train"]
    for command in found:
        read([word.replace("$NODES", "2").replace("$RUN", "runs/x") for word in command])


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_has_the_fields_of_its_kind_and_pods_that_kubernetes_accepts(name):
    manifest, cluster = MANIFESTS[name], cluster_of(name)
    assert manifest["apiVersion"] == "ray.io/v1" and manifest["kind"] in ("RayCluster", "RayJob")
    assert manifest["spec"].keys() <= (JOB if manifest["kind"] == "RayJob" else CLUSTER)
    assert cluster.keys() <= CLUSTER and cluster["headGroupSpec"].keys() == GROUP
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert all(type(value) is str for value in group["rayStartParams"].values())  # as KubeRay asks
    for group in cluster["workerGroupSpecs"]:
        assert group.keys() == WORKERS and group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    schemas = pytest.importorskip("kubernetes_validate")
    for number, pod in enumerate(pods_of(name)):
        whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number}"}, **pod}
        schemas.validate(whole, schemas.latest_version(), strict=True)


def test_a_job_runs_the_script_with_what_it_needs():
    (container,) = pods_of("job.yaml")[0]["spec"]["containers"]
    script = (DEPLOY / "train.sh").read_text()
    assert {each["name"] for each in container["env"]} == {"RUN", "NODES"}
    assert all(f"${name}" in script for name in ("RUN", "NODES"))
    entry, mounted = shlex.split(MANIFESTS["job.yaml"]["spec"]["entrypoint"]), container["volumeMounts"][0]["mountPath"]
    assert entry == ["bash", f"{mounted}/train.sh"]
    nodes = {each["name"]: each["value"] for each in container["env"]}["NODES"]
    assert int(nodes) == sum(group["replicas"] for group in cluster_of("job.yaml")["workerGroupSpecs"])


def test_the_version_of_ray_is_one_that_the_package_allows():
    from packaging.requirements import Requirement

    extra = (ROOT / "pyproject.toml").read_text().partition('cluster = ["')[2].partition('"')[0]
    for name in MANIFESTS:
        assert Requirement(extra).specifier.contains(cluster_of(name)["rayVersion"])
