"""Several hosts on one machine: network namespaces, each with its own host name and /dev/shm.

    with Hosts(2) as hosts:
        hosts.run("node1", ["mpirun", *hosts.mpirun_options(), "-H", "node1:2,node2:2", "-n", "4", PROGRAM])

The hosts share the file system, which is the parallel file system of a cluster, but not /mnt, which is the disk of a node. A further
host, `head`, is the login node: its namespace has the bridge that joins the others. All processes are in one process namespace, and
everything ends with its first process: nothing of the machine's own network changes, and nothing is left.

A host can be lost (`crash`), frozen (`freeze`) or cut off (`cut_off`), and becomes as it was by `heal`.
"""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import textwrap
import threading
import time

NETWORK = "10.91.0"  # is seen only inside


def missing():
    """Returns why this machine cannot have such hosts, or None."""
    for tool in ("unshare", "nsenter", "ip"):
        if not shutil.which(tool):
            return f"{tool} is missing (Debian packages util-linux and iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    tried = subprocess.run(["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "ip", "link", "add", "br0", "type", "bridge"],
                           capture_output=True, text=True)
    return None if tried.returncode == 0 else f"no network namespaces here: {tried.stderr.strip()}"


def name_and_state(process):
    try:
        name, rest = pathlib.Path(f"/proc/{process}/stat").read_text().split(" (", 1)[1].rsplit(") ", 1)
        return name, rest.split()[0]
    except OSError:
        return "", ""  # it has ended


def children_of(process):
    try:
        return pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return []


class Hosts:
    def __init__(self, num, folder):
        self.names = [f"node{i + 1}" for i in range(num)]
        self.folder = pathlib.Path(folder)
        self.started, self.ended = [], threading.Event()

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        addresses = {"head": f"{NETWORK}.254", **{name: f"{NETWORK}.{i + 1}" for i, name in enumerate(self.names)}}
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{at} {name}\n" for name, at in addresses.items()))
        self.first = subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net", "--uts",
                                       "bash", "-c", "sleep infinity & wait"],  # bash also waits for orphans
                                      stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.head = self._child_of(self.first.pid)
        self._in_head(f"""
            hostname head
            mount --bind {self.folder}/hosts /etc/hosts
            ip link set lo up
            ip link add br0 type bridge
            ip addr add {addresses['head']}/24 dev br0
            ip link set br0 up
        """)
        for i, name in enumerate(self.names):
            # The number that a process has inside is what nsenter needs there.
            self._in_head(f"""
                setsid unshare --net --uts --mount sleep infinity </dev/null >/dev/null 2>&1 &
                host=$!
                echo $host >{self.folder}/{name}.pid
                until [ "$(readlink /proc/$host/ns/net)" != "$(readlink /proc/self/ns/net)" ] &&
                      [ "$(cat /proc/$host/comm)" = sleep ]; do sleep 0.02; done
                ip link add veth{i} type veth peer name eth0 netns $host
                ip link set veth{i} master br0 up
            """)
            self.check(name, f"""
                hostname {name}
                mount -t tmpfs tmpfs /dev/shm
                mount -t tmpfs tmpfs /mnt
                ip addr add {addresses[name]}/24 dev eth0
                ip link set lo up
                ip link set eth0 up
            """)
        agent = self.folder / "agent"
        agent.write_text('#!/bin/sh\n# Stands for ssh: agent [-options] HOST COMMAND...\n'
                         'while [ "${1#-}" != "$1" ]; do shift; done\nhost=$1; shift\n'
                         f'[ -e {self.folder}/$host.unreachable ] && {{ echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255; }}\n'
                         f'nsenter --target "$(cat {self.folder}/$host.pid)" --net --uts --mount --wd="$PWD" /bin/sh -c "$*"\n'
                         'code=$?\n'
                         f'[ -e {self.folder}/$host.unreachable ] && exec sleep infinity  # ssh does not learn that its host is gone\n'
                         'exit $code\n')
        agent.chmod(0o755)
        self.agent = str(agent)
        threading.Thread(target=self._continue_entrances, daemon=True).start()
        return self

    def _continue_entrances(self):
        """nsenter stops itself with the process that it started, as a rank stops mpirun while it saves (base/launcher_hold.h), and
        nobody continues it with that process."""
        while not self.ended.wait(0.2):
            for each in pathlib.Path(f"/proc/{os.getpid()}/task").glob("*/children"):
                for process in each.read_text().split():
                    if name_and_state(process) == ("nsenter", "T") and "T" not in {name_and_state(child)[1] for child in children_of(process)}:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(int(process), signal.SIGCONT)

    def __exit__(self, *_):
        self.ended.set()
        os.kill(self.head, signal.SIGKILL)  # the first process of its namespace: all others end with it
        self.first.wait()
        for process in self.started:
            process.wait()

    @staticmethod
    def _child_of(parent):
        while True:
            children = pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
            if children and pathlib.Path(f"/proc/{children[0]}/comm").read_text().strip() == "bash":
                return int(children[0])
            time.sleep(0.02)

    def _in_head(self, script):
        subprocess.run([*self._enter("head"), "bash", "-ec", textwrap.dedent(script)], check=True)

    def _enter(self, name):
        words = ["nsenter", "--target", str(self.head), "--pid", "--net", "--uts", "--mount", f"--wd={os.getcwd()}"]
        if name != "head":
            inside = (self.folder / f"{name}.pid").read_text().strip()
            words += ["nsenter", "--target", inside, "--net", "--uts", "--mount", f"--wd={os.getcwd()}"]
        return words

    def start(self, name, command, **options):
        """Starts a command on a host; returns the Popen of what entered it, which passes no signals on."""
        process = subprocess.Popen([*self._enter(name), *map(str, command)], **options)
        self.started.append(process)
        return process

    def processes(self, name):
        """Returns the numbers, outside, of all processes of a host but the one that keeps it."""
        inside = int((self.folder / f"{name}.pid").read_text())
        network, found = self.check(name, "readlink /proc/self/ns/net"), []
        for each in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(each / "ns/net") == network and int((each / "status").read_text().split("NSpid:")[1].split("\n")[0].split()[-1]) != inside:
                    found.append(int(each.name))
            except (OSError, IndexError):
                continue  # it has ended
        return found

    def signal(self, name, number):
        """Sends a signal to all processes of a host; returns how many there were."""
        found = self.processes(name)
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        return len(found)

    def crash(self, name):
        """The host loses its power: its link is down before its processes could close their connections."""
        self.cut_off(name)
        self.signal(name, signal.SIGKILL)

    def freeze(self, name):
        """No process of the host runs any longer; its kernel still answers."""
        self.signal(name, signal.SIGSTOP)

    def terminate(self, name):
        """The ranks of the host get SIGTERM."""
        self._signal_program(name, b"train", signal.SIGTERM)

    def _signal_program(self, name, subcommand, number):
        for process in self.processes(name):
            words = pathlib.Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            if words[0].endswith(b"athanor") and words[1:2] == [subcommand]:
                os.kill(process, number)

    def cut_off(self, name):
        """The link of the host goes down, at the side of the switch, and no user can log in any more. Its processes run on, but
        the one that reports to the shared file system hangs, as that file system is behind the link."""
        (self.folder / f"{name}.unreachable").touch()
        self._link(name, "down")
        self._signal_program(name, b"board-collector", signal.SIGSTOP)

    def _link(self, name, state):
        self.run("head", ["ip", "link", "set", f"veth{self.names.index(name)}", state])

    def heal(self):
        """Ends all processes of all hosts, and makes the hosts as they were at first."""
        for name in self.names:
            (self.folder / f"{name}.unreachable").unlink(missing_ok=True)
            while self.signal(name, signal.SIGKILL):
                time.sleep(0.05)
            self._link(name, "up")
            self.check(name, "rm -rf /dev/shm/*")

    def run(self, name, command, **options):
        """Runs a command on a host; returns the CompletedProcess."""
        return subprocess.run([*self._enter(name), *map(str, command)], capture_output=True, text=True, **options)

    def check(self, name, script):
        """Runs a shell script on a host and returns what it prints; fails if it fails."""
        done = self.run(name, ["bash", "-ec", textwrap.dedent(script)])
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def mpirun_options(self):
        """What `mpirun` of Open MPI needs here; with more ranks than cores, they have to let each other run."""
        return ["--allow-run-as-root", "--mca", "plm_rsh_agent", self.agent, "--mca", "oob_tcp_if_include", f"{NETWORK}.0/24",
                "--mca", "btl_tcp_if_include", f"{NETWORK}.0/24", "--mca", "mpi_yield_when_idle", "1"]
