// Endings of jobs under each launcher, scheduler and library that classification knows: one is made up for each way in
// which they name a process, a node or a peer. All hosts are invented.

#include <gtest/gtest.h>

#include "base/testing/folder_test.h"
#include "launch/testing/passed_on.h"

namespace athanor::launch::endings_test {
namespace {

using Names = std::vector<std::string>;

struct Ending {
  const char* name;
  int code;
  std::string log;
  Cause cause;
  Names hosts;
  bool is_suspect = false;
  JobHosts job = {};
};

const std::string kSteps = "step: 1  loss: 2.5  lr: 4e-05\nstep: 2  loss: 2.4  lr: 4e-05\n";

Names names_of(const std::vector<Suspect>& suspects) {
  Names names;
  for (const Suspect& each : suspects) {
    names.push_back(each.host);
    EXPECT_FALSE(each.reason.empty());
  }
  return names;
}

void expect(const std::vector<Ending>& endings) {
  for (const Ending& ending : endings) {
    const auto found = classified(kSteps + ending.log, ending.code, ending.job);
    EXPECT_STREQ(row_of(found.cause).kind, row_of(ending.cause).kind) << ending.name;
    EXPECT_EQ(found.hosts, ending.hosts) << ending.name;
    EXPECT_EQ(names_of(found.suspects), ending.is_suspect ? ending.hosts : Names{}) << ending.name;
    for (const auto& [mutation, mutate] : mutations()) {
      const auto passed_on = classified(mutated(kSteps + ending.log, mutate), ending.code, ending.job);
      EXPECT_EQ(passed_on.hosts, ending.hosts) << ending.name << ", " << mutation;
      EXPECT_STREQ(row_of(passed_on.cause).kind, row_of(ending.cause).kind) << ending.name << ", " << mutation;
    }
  }
}

TEST(Endings, WhereOneProcessWasKilledItsHostIsSuspect) {
  expect({
      {"Open MPI 4",
       137,
       "--------------------------------------------------------------------------\n"
       "Primary job  terminated normally, but 1 process returned\na non-zero exit code. Per user-direction, the job "
       "has been "
       "aborted.\nmpirun noticed that process rank 12 with PID 9974 on node n03 exited on signal 9 (Killed).\n",
       Cause::kCrashUnknown,
       {"n03"},
       true},
      {"Open MPI 4, alone",
       137,
       "mpirun noticed that process rank 12 with PID 9974 on node n03 exited on signal 9 (Killed).\n",
       Cause::kCrashUnknown,
       {"n03"},
       true},
      {"Open MPI 5",
       137,
       "prterun noticed that process rank 12 with PID 9974 on node n03 exited on\nsignal 9 (Killed).\n",
       Cause::kCrashUnknown,
       {"n03"},
       true},
      {"MPICH",
       9,
       "===================================================================================\n"
       "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 9974 RUNNING AT n03\n=   EXIT CODE: 9\n"
       "=   CLEANING UP REMAINING PROCESSES\n=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES\n"
       "===================================================================================\n"
       "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n",
       Cause::kCrashUnknown,
       {"n03"},
       true},
      {"Intel MPI",
       9,
       "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   RANK 12 PID 9974 RUNNING AT n03\n"
       "=   KILLED BY SIGNAL: 9 (Killed)\n\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
       "=   RANK 0 PID 8812 RUNNING AT n01\n=   KILLED BY SIGNAL: 15 (Terminated)\n",
       Cause::kCrashUnknown,
       {"n03"},
       true},
      {"MVAPICH",
       1,
       "[n03:mpispawn_1][child_handler] MPI process (rank: 12, pid: 9974) terminated with signal 9 -> abort job\n"
       "[n01:mpirun_rsh][process_mpispawn_connection] mpispawn_1 from node n03 aborted: MPI process error (1)\n",
       Cause::kCrashUnknown,
       {"n03"},
       true},
      {"MVAPICH, a lost process",
       1,
       "[n03:mpispawn_1][readline] Unexpected End-Of-File on file descriptor 5. MPI process died?\n"
       "[n03:mpispawn_1][mtpmi_processops] Error while reading PMI socket. MPI process died?\n"
       "[n01:mpirun_rsh][process_mpispawn_connection] mpispawn_1 from node n03 aborted: Error while reading a PMI "
       "socket "
       "(4)\n",
       Cause::kCrashUnknown,
       {"n03"},
       true},
      {"PALS",
       143,
       "n03.hsn.site.org: rank 12 died from signal 9\nn01.hsn.site.org: rank 1 died from signal 15\n",
       Cause::kCrashUnknown,
       {"n03.hsn.site.org"},
       true},
      {"ALPS",
       137,
       "_pmiu_daemon(SIGCHLD): [NID 00124] [c0-0c1s2n3] [Mon Jan  5 11:20:17 2026] PE RANK 12 exit signal Killed\n"
       "[NID 00124] 2026-01-05 11:20:17 Apid 8812: initiated application termination\n",
       Cause::kCrashUnknown,
       {"nid00124"},
       true},
      {"Slurm",
       137,
       "srun: error: n03: task 12: Killed\nsrun: Terminating StepId=812.0\n"
       "slurmstepd: error: *** STEP 812.0 ON n01 CANCELLED AT 2026-01-05T11:20:17 ***\n"
       "srun: error: n01: tasks 0-7: Terminated\nsrun: error: n02: task 8: Killed\n",
       Cause::kCrashUnknown,
       {"n03"},
       true},
      {"Slurm, a bus error",
       135,
       "srun: error: n03: task 12: Bus error (core dumped)\n",
       Cause::kCrashUnknown,
       {"n03"},
       true},
      {"Slurm, a shell",
       137,
       "srun: error: n03: task 12: Exited with exit code 137\n",
       Cause::kCrashUnknown,
       {"n03"},
       true},
      {"Open MPI 4, a shell",
       137,
       "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
       "the job to be terminated. The first process to do so was:\n\n  Process name: [[57349,1],5]\n  Exit code:    "
       "137\n",
       Cause::kCrashUnknown,
       {"n02"},
       true,
       JobHosts({{"n1", 4}, {"n02", 4}})},
      {"DeepSpeed",
       1,
       "n01: [2026-01-05 11:20:17,120] [INFO] [launch.py:256:main] process 8811 spawned\n"
       "n03: [2026-01-05 11:20:17,120] [ERROR] [launch.py:321:sigkill_handler] ['python'] exits with return code = "
       "-9\n",
       Cause::kCrashUnknown,
       {"n03"},
       true},
      {"Flux",
       137,
       "210.339s: flux-shell[0]: FATAL: doom: train: task rank 12 on host n03 failed (Killed) and exit-on-error is "
       "set\n"
       "flux-job: task(s) Killed\n",
       Cause::kCrashUnknown,
       {"n03"},
       true},
      {"JSM",
       137,
       "ERROR:  One or more process (first noticed rank 5) terminated with signal 9\n",
       Cause::kCrashUnknown,
       {"n02"},
       true,
       JobHosts({{"n1", 4}, {"n02", 4}})},
      {"Kubernetes",
       137,
       "Name:             train-worker-3\nNode:             n03/10.1.0.3\n    State:          Terminated\n"
       "      Reason:       Error\n      Exit Code:    137\n",
       Cause::kCrashUnknown,
       {"n03"},
       true},
      {"torchrun",
       1,
       "W0105 11:20:17 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 8813 closing signal "
       "SIGTERM\n"
       "E0105 11:20:17 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 4 (pid: "
       "8812)\n"
       "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
       "============================================================\ntrain.py FAILED\n"
       "------------------------------------------------------------\nFailures:\n  <NO_OTHER_FAILURES>\n"
       "------------------------------------------------------------\nRoot Cause (first observed failure):\n[0]:\n"
       "  time      : 2026-01-05_11:20:17\n  host      : n03.site.org\n  rank      : 12 (local_rank: 4)\n"
       "  exitcode  : -9 (pid: 8812)\n  error_file: <N/A>\n  traceback : Signal 9 (SIGKILL) received by PID 8812\n",
       Cause::kCrashUnknown,
       {"n03.site.org"},
       true},
  });
}

TEST(Endings, AMemoryThatRanOutOnOneNodeMakesItSuspect) {
  expect({
      {"Slurm, task", 1, "srun: error: n03: task 12: Out Of Memory\n", Cause::kOutOfMemory, {"n03"}, true},
      {"Slurm, step",
       1,
       "slurmstepd-n03: error: Detected 1 oom_kill event in StepId=812.0. Some of the step tasks have been OOM "
       "Killed.\n"
       "srun: error: n03: task 12: Out Of Memory\nsrun: Terminating StepId=812.0\n",
       Cause::kOutOfMemory,
       {"n03"},
       true},
      {"Linux",
       137,
       "Jan  5 11:20:17 n03 kernel: Out of memory: Killed process 8812 (python) total-vm:262144000kB\n"
       "mpirun noticed that process rank 12 with PID 9974 on node n03 exited on signal 9 (Killed).\n",
       Cause::kOutOfMemory,
       {"n03"},
       true},
      {"ALPS",
       137,
       "[NID 00124] 2026-01-05 11:20:17 Apid 8812: OOM killer terminated this process.\n",
       Cause::kOutOfMemory,
       {"nid000124"},
       true,
       JobHosts({{"nid000123", 0}, {"nid000124", 0}})},
      {"Kubernetes",
       137,
       "Node:             n03/10.1.0.3\n    State:          Terminated\n      Reason:       OOMKilled\n      Exit "
       "Code:    137\n",
       Cause::kOutOfMemory,
       {"n03"},
       true},
      {"Slurm, two nodes",
       1,
       "srun: error: n03: task 12: Out Of Memory\nsrun: error: n04: task 16: Out Of Memory\n",
       Cause::kOutOfMemory,
       {}},
  });
}

TEST(Endings, ANodeThatASchedulerLostIsAtFault) {
  expect({
      {"Slurm",
       143,
       "srun: error: Node failure on n03\nsrun: Job step aborted: Waiting up to 32 seconds\n",
       Cause::kBadNode,
       {"n03"}},
      {"Slurm, by number",
       1,
       "srun: error: Aborting, io error and missing step on node 1\n",
       Cause::kBadNode,
       {"n02"},
       false,
       JobHosts({{"n01", 0}, {"n02", 0}})},
      {"Slurm, by a number of which nothing is known",
       1,
       "srun: error: Cannot communicate with node 1.  Aborting job.\n",
       Cause::kBadNode,
       {}},
      {"Slurm, the controller",
       1,
       "slurmctld: error: Nodes n[03-04] not responding, setting DOWN\n",
       Cause::kBadNode,
       {"n03", "n04"}},
      {"Slurm, the launch",
       1,
       "srun: error: Task launch for StepId=812.0 failed on node n03: Communication connection failure\n",
       Cause::kBadNode,
       {"n03"}},
      {"Slurm, the prolog", 1, "srun: error: Prolog hung on node n03\n", Cause::kBadNode, {"n03"}},
      {"PBS", -9, "=>> PBS: job killed: node 3 (n03) requested job die, code 15009\n", Cause::kBadNode, {"n03"}},
      {"PBS, the end of a connection", -9, "node EOF 3 (n03)\n", Cause::kBadNode, {"n03"}},
      {"PBS, the server", -9, "Job requeued, execution node n03 down\n", Cause::kBadNode, {"n03"}},
      {"LSF", 1, "Error: Remote JSM server is not responding on host n03\n", Cause::kBadNode, {"n03"}},
      {"Flux",
       1,
       "flux-job: job.exception: type=node-failure severity=0 node failure on n03 (rank 3)\n",
       Cause::kBadNode,
       {"n03"}},
      {"Flux, the prolog",
       1,
       "job-manager.err[0]: prolog exited with code=1 on n03 (rank 3)\n",
       Cause::kBadNode,
       {"n03"}},
      {"Flux, the shell",
       1,
       "9.3s: flux-shell[0]: FATAL: doom: train: shell rank 3 on host n03 exited and exit-timeout=30s has expired\n",
       Cause::kBadNode,
       {"n03"}},
      {"Kubernetes",
       1,
       "Normal   NodeNotReady   node/n03   Node n03 status is now: NodeNotReady\n",
       Cause::kBadNode,
       {"n03"}},
      {"ALPS",
       1,
       "[NID 00123] 2026-01-05 11:20:17 Apid 8812 killed. Received node event ec_node_failed for nid 124\n",
       Cause::kBadNode,
       {"nid00124"}},
      {"Open MPI 5",
       205,
       "PRTE has lost communication with a remote daemon.\n\n  HNP daemon   : [prterun-n01-8812@0,0] on node n01\n"
       "  Remote daemon: [prterun-n01-8812@0,2] on node n03\n",
       Cause::kBadNode,
       {"n03"}},
      {"MPICH",
       1,
       "[mpiexec@n01] control_cb (mpiexec/pmiserv_cb.c:280): connection to proxy 2 at host n03 failed\n",
       Cause::kBadNode,
       {"n03"}},
      {"ssh", 255, "Connection to n03 closed by remote host.\n", Cause::kBadNode, {"n03"}},
      {"an agent", 1, "agent: lost contact with node n03\n", Cause::kBadNode, {"n03"}},
  });
}

TEST(Endings, WhereAProcessCouldNotBeStartedTheHostIsSuspect) {
  expect({
      {"Slurm",
       1,
       "srun: error: task 5 launch failed: Error configuring interconnect\n",
       Cause::kLauncher,
       {"n02"},
       true,
       JobHosts({{"n01", 4}, {"n02", 4}})},
      {"Open MPI 4",
       1,
       "mpirun was unable to start the specified application as it encountered an\n"
       "error on node n03. More information may be available above.\n",
       Cause::kLauncher,
       {"n03"},
       true},
      {"Open MPI 5",
       1,
       "prterun was unable to launch the specified application as it encountered an\nerror:\n\n"
       "Error: pipe function call failed when setting up I/O forwarding\nsubsystem\n\n   Node: n03\n\n"
       "while attempting to start process rank 12.\n",
       Cause::kLauncher,
       {"n03"},
       true},
      {"Intel MPI",
       1,
       "[mpiexec@n01] check_exit_codes (hydra_demux_poll.c:117): unable to run bstrap_proxy on n03 (pid 9974, exit "
       "code "
       "65280)\n",
       Cause::kLauncher,
       {"n03"},
       true},
      {"Flux",
       1,
       "0.3s: flux-shell[3]: ERROR: task 12 (host n03): start failed: Input/output error\n",
       Cause::kLauncher,
       {"n03"},
       true},
  });
}

TEST(Endings, APeerThatIsGoneIsAtFaultAndWhoReportsItIsNot) {
  expect({
      {"NCCL, closed",
       1,
       "n04:8812:8890 [0] NCCL WARN socketProgress: Connection closed by remote peer n03.site.org<41234>\n",
       Cause::kBadNode,
       {"n03.site.org"}},
      {"NCCL, in an exception",
       1,
       "[rank4]: Last error:\n[rank4]: socketProgress: Connection closed by remote peer n03.site.org<41234>\n",
       Cause::kBadNode,
       {"n03.site.org"}},
      {"NCCL, reset",
       1,
       "n04:8812:8890 [0] NCCL WARN ncclOsSocketProgressOpt: Call to recv from 10.1.0.3<41234> failed : Connection "
       "reset by "
       "peer\n",
       Cause::kBadNode,
       {"10.1.0.3"}},
      {"NCCL, IPv6",
       1,
       "n04:8812:8890 [0] NCCL WARN socketStartConnect: Connect to fe80::ba59:9fff:fe12:3%ib0<41234> failed : No route "
       "to "
       "host\n",
       Cause::kBadNode,
       {"fe80::ba59:9fff:fe12:3"}},
      {"NCCL, InfiniBand",
       1,
       "n04:8812:8890 [0] NCCL WARN NET/IB: Got completion from peer 10.1.0.3<41234> with "
       "status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_RDMA_WRITE(1) vendor_err=129 hca mlx5_0\n",
       Cause::kBadNode,
       {"10.1.0.3"}},
      {"gloo, closed",
       1,
       "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.1.0.3]:53121. This\n",
       Cause::kBadNode,
       {"10.1.0.3"}},
      {"gloo, reset",
       1,
       "RuntimeError: [pair.cc:538] Read error [10.1.0.3]:53121: Connection reset by peer\n",
       Cause::kBadNode,
       {"10.1.0.3"}},
      {"gloo, written",
       1,
       "RuntimeError: [pair.cc:339] writev [10.1.0.3]:53121: Broken pipe\n",
       Cause::kBadNode,
       {"10.1.0.3"}},
      {"gloo, connected",
       1,
       "RuntimeError: connect: Connection timed out, remote=[10.1.0.3]:43771\n",
       Cause::kBadNode,
       {"10.1.0.3"}},
      {"UCX",
       1,
       "[1767612017.123456] [n04:8812 :0] sock.c:355  UCX  ERROR connect(fd=52, dest_addr=10.1.0.3:41234) failed: No "
       "route to "
       "host\n",
       Cause::kBadNode,
       {"10.1.0.3"}},
      {"UCX, datagrams",
       1,
       "[n04:8812 :0:8812] ud_ep.c:296  Fatal: UD endpoint 0x55d0 to n03:9974: unhandled timeout error\n",
       Cause::kBadNode,
       {"n03"}},
      {"MPICH",
       1,
       "Abort(69831439) on node 0: Fatal error in PMPI_Barrier\nMPIDI_nem_tcp_recv(301): Communication error with rank "
       "12: "
       "Connection reset by peer\nsrun: error: n03: task 12: Terminated\n",
       Cause::kBadNode,
       {"n03"}},
      {"MVAPICH",
       1,
       "[n04:mpi_rank_16][handle_cqe] Msg from 12: wc.status=12 (transport retry counter exceeded)\n"
       "srun: error: n03: task 12: Terminated\n",
       Cause::kBadNode,
       {"n03"}},
      {"Open MPI",
       1,
       "[n04][[812,1],3][btl_tcp_frag.c:242:mca_btl_tcp_frag_recv] peer: n03 mca_btl_tcp_frag_recv: readv failed: "
       "Connection "
       "reset by peer (104)\n",
       Cause::kBadNode,
       {"n03"}},
      {"a barrier",
       1,
       "[rank0]: RuntimeError: Ranks 12, 13 failed to pass monitoredBarrier in 60000 ms\n"
       "srun: error: n03: tasks 12-15: Terminated\n",
       Cause::kBadNode,
       {"n03"}},
      {"a report of torchrun tells where a rank is",
       1,
       "[rank12]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\n[rank0]: Broken pipe\n"
       "Root Cause (first observed failure):\n[0]:\n  time      : 2026-01-05_11:20:17\n  host      : n03\n"
       "  rank      : 12 (local_rank: 4)\n  exitcode  : 1 (pid: 8812)\n",
       Cause::kBadNode,
       {"n03"}},
  });
}

TEST(Endings, WhatFollowsFromSomethingElseMakesNoHostSuspect) {
  const std::string killed = "srun: error: n03: task 12: Killed\n";
  const std::string root =
      "Root Cause (first observed failure):\n[0]:\n  time      : 2026-01-05_11:20:17\n  host      : n03\n"
      "  rank      : 12 (local_rank: 4)\n";
  expect({
      {"an exception", 1, "[rank0]: KeyError: 'x'\n" + killed, Cause::kCode, {}},
      {"a full device",
       1,
       "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n" + killed,
       Cause::kOutOfMemory,
       {}},
      {"another process", 1, "srun: error: n01: task 0: Exited with exit code 1\n" + killed, Cause::kCrashUnknown, {}},
      {"a limit of time",
       143,
       "slurmstepd: error: *** STEP 812.0 ON n01 CANCELLED AT 2026-01-05T11:20:17 DUE TO TIME LIMIT ***\n" + killed,
       Cause::kWalltime,
       {}},
      {"a user",
       137,
       "slurmstepd: error: *** STEP 812.0 ON n01 CANCELLED AT 2026-01-05T11:20:17 ***\n" + killed,
       Cause::kUserCancel,
       {}},
      {"several hosts", 137, killed + "srun: error: n04: task 16: Killed\n", Cause::kCrashUnknown, {}},
      {"a list of hosts", 137, "srun: error: n[03-04]: tasks 12-19: Killed\n", Cause::kCrashUnknown, {}},
      {"a fault of the program",
       139,
       "mpirun noticed that process rank 12 with PID 9974 on node n03 exited on signal 11 (Segmentation fault).\n",
       Cause::kCrashUnknown,
       {}},
      {"an exit code", 1, root + "  exitcode  : 1 (pid: 8812)\n", Cause::kCrashUnknown, {}},
      {"an aborted process", 1, root + "  exitcode  : -6 (pid: 8812)\n", Cause::kCrashUnknown, {}},
      {"two reports whose lines are mixed",
       1,
       "Root Cause (first observed failure):\n  host      : n03\n  host      : n04\n  exitcode  : -9 (pid: 8812)\n",
       Cause::kSuccessMarker,
       {}},
      {"what was survived", 0, killed + "step: 3  loss: 1\nstep: 4  loss: 1\nstep: 5  loss: 1\n", Cause::kSuccess, {}},
  });
}

TEST(Endings, WhoIsKnownToBeAtFaultIsNamedAndNotWhoIsSuspect) {
  const auto found = classified(kSteps + "srun: error: n04: task 16: Killed\nsrun: error: Node failure on n03\n", 1);
  EXPECT_EQ(found.hosts, Names{"n03"});
  EXPECT_TRUE(found.suspects.empty());
}

}  // namespace
}  // namespace athanor::launch::endings_test
