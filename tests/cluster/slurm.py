"""A real Slurm on the hosts of hosts.py: slurmctld on the head, a slurmd on each node, without munge, systemd or cgroups."""
import os
import shutil
import time

CONFIGURATION = """
ClusterName=athanor
SlurmctldHost=head
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=30
SlurmdTimeout=60
SchedulerParameters=sched_interval=5,bf_interval=5
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
TmpFS=/mnt
GresTypes=gpu
NodeName=DEFAULT Sockets=2 CoresPerSocket=52 RealMemory=2000 Gres=gpu:4 State=UNKNOWN
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    """Returns which program is missing, or None."""
    for tool in ("slurmctld", "slurmd", "sbatch", "srun"):
        if not shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"):
            return f"{tool} is missing (Debian packages slurm-wlm and slurm-client)"
    return None


class Slurm:
    """Its commands run on the head."""

    def __init__(self, hosts):
        self.hosts, self.folder = hosts, hosts.folder / "slurm"

    def __enter__(self):
        self.folder.mkdir()
        (self.folder / "state").mkdir()
        nodes = "\n".join(f"NodeName={name}" for name in self.hosts.names)
        conf = self.folder / "slurm.conf"
        conf.write_text(CONFIGURATION.format(folder=self.folder, nodes=nodes))
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu[0-3]\n")
        for i in range(4):
            (self.folder / f"gpu{i}").touch()  # Slurm counts these files and does not open them
        self.environment = {**os.environ, "SLURM_CONF": str(conf), "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        self._start("head", "slurmctld", "-D", "-c")
        for name in self.hosts.names:
            (self.folder / f"spool.{name}").mkdir()
            self._start(name, "slurmd", "-D")
        self.wait(lambda: self("sinfo", "--noheader", "--format=%D %T") == f"{len(self.hosts.names)} idle", 60)
        return self

    def __exit__(self, *_):
        pass  # all processes end with the hosts

    def _start(self, host, *command):
        with open(self.folder / f"{command[0]}.{host}.out", "w", encoding="utf-8") as out:
            self.hosts.start(host, command, env=self.environment, stdout=out, stderr=out)

    def __call__(self, *command, env=None):
        """Runs a command and returns what it prints."""
        done = self.hosts.run("head", command, env={**self.environment, **(env or {})})
        return done.stdout.strip() or done.stderr.strip()

    def state(self, job):
        """Returns one field of a job as Slurm prints them, such as {"JobState": "RUNNING", ...}."""
        words = self("scontrol", "-o", "show", "job", str(job)).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, holds, seconds, why=lambda: ""):
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"not after {seconds} s\n{why()}\n" + self("squeue") + "\n" + self.logs()
            time.sleep(0.2)

    def logs(self):
        return "\n".join(f"--- {path.name}\n" + path.read_text()[-1500:] for path in sorted(self.folder.glob("*.log")))
