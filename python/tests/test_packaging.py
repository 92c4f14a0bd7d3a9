"""What packaging/ has for Kubernetes and Slurm: against Kubernetes' own schemas, and run as far as
one machine can."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import tern
from cluster import Daemon
from tern._library import program

PACKAGE = pathlib.Path(tern.__file__).parent.parent
PACKAGING = pathlib.Path(__file__).parents[2] / "packaging"
MANIFESTS = sorted((PACKAGING / "kubernetes").glob("*.yaml"))
SCRIPTS = sorted((PACKAGING / "slurm").iterdir())


def documents(name):
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with tools/python_env.sh")
    return list(yaml.safe_load_all((PACKAGING / "kubernetes" / name).read_text()))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_a_manifest_is_what_kubernetes_takes(path):
    validate = pytest.importorskip("kubernetes_validate", reason="it comes with python_env.sh")
    for document in documents(path.name):
        validate.validate(document, validate.latest_version(), strict=True)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_a_manifest_refers_to_what_it_has(path):
    document, = documents(path.name)
    template = document["spec"]["template"]
    volumes = {volume["name"] for volume in template["spec"]["volumes"]}
    selector = document["spec"].get("selector", {}).get("matchLabels", {})
    assert selector.items() <= template["metadata"]["labels"].items()
    for container in template["spec"]["containers"]:
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        known = {variable["name"] for variable in container["env"]}
        assert set(re.findall(r"\$\((\w+)\)", str(container))) <= known
        assert container["securityContext"]["allowPrivilegeEscalation"] is False


@pytest.fixture
def pod(tmp_path_factory):
    """The daemon of the DaemonSet, with its container's command, and folders below the test's."""
    folder = tmp_path_factory.mktemp("k")
    daemon_set, = documents("daemonset.yaml")
    container, = daemon_set["spec"]["template"]["spec"]["containers"]
    # As a kubelet mounts a secret: the file is a link into a folder that it replaces at an update.
    key = folder / "etc/tern/key"
    (key / "..2026").mkdir(parents=True)
    (key / "..data").symlink_to("..2026")
    subprocess.run([program("ternctl"), "pki", "new-key", key / "..2026/cluster.key"], check=True,
                   stdout=subprocess.DEVNULL)
    (key / "..2026/cluster.key").chmod(0o400)
    (key / "cluster.key").symlink_to("..data/cluster.key")
    (folder / "run/tern").mkdir(parents=True)
    name, *words = container["command"]
    assert name == "/usr/sbin/ternd"
    words = [re.sub(r"=/(?=run/|etc/)", f"={folder}/", word) for word in words]
    words = [word.replace("[$(NODE_ADDRESS)]:7700", "[127.0.0.1]:0") for word in words]
    # Of an option that is given twice, the last counts.
    daemon = Daemon(folder / "run/tern", *words)
    assert f"--socket={daemon.socket}" in words
    assert f"--control-socket={daemon.control_socket}" in words
    yield folder, container, daemon
    daemon.stop()


def test_the_daemon_set_serves_by_the_cluster_key_and_is_probed(pod):
    _, container, daemon = pod
    status = daemon.ask("status")
    assert (status["peer_security"], status["plaintext"]) == ("key", False)
    for probe in ("readinessProbe", "livenessProbe"):
        name, *words = container[probe]["exec"]["command"]
        asked = [program(pathlib.Path(name).name), "--socket", daemon.control_socket, *words]
        assert subprocess.run(asked, stdout=subprocess.DEVNULL).returncode == 0


def test_the_pods_of_the_job_meet_through_the_folder(pod):
    folder, _, daemon = pod
    job, = documents("job.yaml")
    container, = job["spec"]["template"]["spec"]["containers"]
    assert job["spec"]["completionMode"] == "Indexed"
    variables = {row["name"]: row.get("value", "7") for row in container["env"]}
    variables = {name: value.replace("$(JOB_UID)", "7") for name, value in variables.items()}
    assert variables["TERN_SOCKET"] == "/run/tern/ternd.sock"
    variables["TERN_SOCKET"] = daemon.socket
    id_file = pathlib.Path(variables["TERN_GROUP_ID_FILE"])
    assert id_file.parent == pathlib.Path("/shared")
    variables["TERN_GROUP_ID_FILE"] = str(folder / id_file.name)
    ranks = [subprocess.Popen(
        [sys.executable, *container["command"][1:], *container["args"]], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, **variables, "PYTHONPATH": str(PACKAGE),
             "JOB_COMPLETION_INDEX": str(index)}) for index in range(job["spec"]["completions"])]
    for index, rank in enumerate(ranks):
        assert rank.communicate() == (f"rank {index} on node 0: 3\n", "")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_a_shell_script(path):
    subprocess.run(["sh", "-n", path], check=True)
    assert os.access(path, os.X_OK), "Slurm runs it"
    if shutil.which("shellcheck") is None:
        pytest.skip("no shellcheck in the PATH")
    checked = subprocess.run(["shellcheck", path], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_the_task_prolog_leaves_what_a_job_has_said():
    def said(**variables):
        return subprocess.run([PACKAGING / "slurm/task_prolog.sh"], env=variables, check=True,
                              capture_output=True, text=True).stdout

    assert said(TERN_SOCKET="/mine", TERN_JOB="mine", SLURM_JOB_ID="7") == ""
    assert said(TERN_SOCKET="/mine", SLURM_JOB_ID="7") == "export TERN_JOB=slurm-7\n"


# Slurm with one node: a step is a child of srun.
SRUN = """#!/bin/sh
while :; do case $1 in
  --job-name=*) name=${1#*=}; shift ;;
  --*) shift ;;
  *) break ;;
esac; done
[ -z "${name:-}" ] || echo $$ >"$STEPS/$name"
SLURM_PROCID=0 SLURM_NTASKS=1 exec "$@"
"""
SQUEUE = 'for step in "$STEPS"/*; do echo "$(cat "$step") $(basename "$step")"; done\n'
SCANCEL = 'kill -TERM "$2"\n'


@pytest.mark.parametrize("program_text, status", [
    ("import tern\nwith tern.init() as group: print(group.size, group.client.socket)", 0),
    ("raise SystemExit(3)", 3)], ids=["succeeds", "fails"])
def test_the_job_script_leaves_no_daemon_socket_or_secret(tmp_path_factory, program_text, status):
    folder = tmp_path_factory.mktemp("s")
    for name in ("bin", "steps", "shared"):
        (folder / name).mkdir()
    for name, text in (("srun", SRUN), ("squeue", "#!/bin/sh\n" + SQUEUE),
                       ("scancel", "#!/bin/sh\n" + SCANCEL),
                       ("tern", f'#!/bin/sh\nexec {sys.executable} -m tern "$@"\n'),
                       ("python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    (folder / "program.py").write_text(program_text)
    done = subprocess.run(
        [PACKAGING / "slurm/job.sbatch", folder / "program.py"], capture_output=True, text=True,
        env={**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "STEPS": f"{folder}/steps",
             "PYTHONPATH": str(PACKAGE), "SLURM_JOB_ID": "7", "SLURM_NNODES": "1",
             "TERN_SHARED": f"{folder}/shared", "TMPDIR": str(folder),
             "XDG_RUNTIME_DIR": str(folder)})
    assert (done.returncode, done.stderr) == (status, "")
    socket = folder / "tern-job-7-0/ternd.sock"
    assert f"export TERN_SOCKET={socket}\n" in done.stdout
    assert status or f"1 {socket}\n" in done.stdout
    assert not socket.parent.exists() and not list((folder / "shared").iterdir())
