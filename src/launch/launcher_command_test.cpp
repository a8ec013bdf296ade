#include "launch/launcher_command.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/shell_words.h"
#include "launch/plan.h"
#include "launch/testing/recorded_machine.h"

namespace athanor::launch {
namespace launcher_command_test {

class Commands : public RecordedMachine {
 protected:
  // The plan for two nodes like a recorded machine, whose first is that machine.
  LaunchPlan plan_of(Surroundings& here, Flavour flavour, LaunchRequest request = {}) {
    const auto hosts = write("hosts", here.host + "\nother\n").string();
    put_program(here, "train", "");
    request.allocation.host_file = hosts;
    request.command = {"train", "run.toml", "--set", "a=b c"};
    request.launcher = "fake";
    put_program(here, "fake", "echo 'mpirun (Open MPI) 4.1.4'");
    LaunchPlan plan = make_plan(request, here);
    plan.launcher = {flavour, "/opt/launcher", "1.0", "a test", "", ""};
    return plan;
  }
  // Its command as a line, without the program and the command of the ranks.
  std::string line_of(const LaunchPlan& plan, const Surroundings& here) {
    auto built = build_command(plan, here);
    rankfile_ = built.rankfile;
    built.parts.erase(built.parts.begin());
    EXPECT_EQ(built.parts.back().words, plan.command);
    built.parts.pop_back();
    return shell_line(built.words());
  }
  std::string line(const std::string& name, Flavour flavour, LaunchRequest request = {}) {
    auto here = machine(name);
    return line_of(plan_of(here, flavour, std::move(request)), here);
  }
  static LaunchRequest without_system_cores() {
    LaunchRequest request;
    request.exclude_cores = "0,52";
    request.reserve_cores = 1;
    return request;
  }
  std::string rankfile_;
};

constexpr const char* kAuroraList = "1-8:9-16:17-24:25-32:33-40:41-48:53-60:61-68:69-76:77-84:85-92:93-100";

TEST_F(Commands, PalsGetsAListOfCoresForEachTileOfAurora) {
  EXPECT_EQ(line("aurora", Flavour::kPals, without_system_cores()),
            std::string("-n 24 --ppn 12 --hosts x4102c0s0b0n0,other --cpu-bind list:") + kAuroraList +
                " --env OMP_NUM_THREADS=7 --envall");
}

TEST_F(Commands, SrunGetsAMaskForEachTileOfAurora) {
  const auto said = line("aurora", Flavour::kSrun, without_system_cores());
  EXPECT_SAYS(said, "--nodes=2 --ntasks=24 --ntasks-per-node=12 --nodelist=x4102c0s0b0n0,other --cpus-per-task=16 ");
  // Cores 1 to 8, 9 to 16, and 53 to 60.
  EXPECT_SAYS(said, "--cpu-bind=mask_cpu:0x1fe,0x1fe00,");
  EXPECT_SAYS(said, ",0x1fe0000000000000,");
  EXPECT_SAYS(said, "--export=ALL,OMP_NUM_THREADS=7 --disable-status");
}

TEST_F(Commands, SrunStartsEachComponentOfAHeterogeneousJobInOneStep) {
  auto here = machine("polaris");
  auto plan = plan_of(here, Flavour::kSrun);
  plan.allocation.component_of = {{here.host, 0}, {"other", 1}};
  auto built = build_command(plan, here);
  const std::string said = shell_line(built.words());
  EXPECT_SAYS(said, "/opt/launcher --het-group=0 --nodes=1 --ntasks=4 --nodelist=x3006c0s13b1n0 --cpus-per-task=");
  EXPECT_SAYS(said,
              " train run.toml --set 'a=b c' : --het-group=1 --nodes=1 --ntasks=4 --nodelist=other "
              "--cpu-bind=sockets --export=ALL,OMP_NUM_THREADS=8 ");
  EXPECT_TRUE(said.ends_with(" train run.toml --set 'a=b c'")) << said;
}

TEST_F(Commands, HydraAndIntelMpiGetTheCoresInTheirWords) {
  EXPECT_EQ(line("polaris", Flavour::kHydra),
            "-n 8 -hosts x3006c0s13b1n0:4,other:4 -bind-to "
            "user:24+25+26+27+28+29+30+31,16+17+18+19+20+21+22+23,8+9+10+11+12+13+14+15,0+1+2+3+4+5+6+7 -genv "
            "OMP_NUM_THREADS 8");
  EXPECT_EQ(line("polaris", Flavour::kIntelMpi),
            "-n 8 -ppn 4 -hosts x3006c0s13b1n0,other -genv I_MPI_PIN_DOMAIN '[0xff000000,0xff0000,0xff00,0xff]' -genv "
            "OMP_NUM_THREADS 8");
}

TEST_F(Commands, OpenMpiDividesSocketsByItselfAndGetsARankFileForAllElse) {
  EXPECT_SAYS(line("two_sockets", Flavour::kOpenMpi),
              "-n 4 -H c101-001:2,other:2 --map-by ppr:1:socket:PE=28 --bind-to core -x OMP_NUM_THREADS=28");
  EXPECT_TRUE(rankfile_.empty());
  EXPECT_SAYS(line("dgx_h100", Flavour::kPrrte), "--map-by ppr:4:package:PE=14 --bind-to core");
  EXPECT_SAYS(line("frontier", Flavour::kOpenMpi), "-n 16 -H frontier00042:8,other:8 --rankfile athanor.rankfile ");
  EXPECT_TRUE(rankfile_.starts_with("rank 0=frontier00042 slot=48-55\nrank 1=frontier00042 slot=56-63\n")) << rankfile_;
  EXPECT_SAYS(rankfile_, "rank 8=other slot=48-55\n");
  EXPECT_SAYS(line("frontier", Flavour::kPrrte), "--map-by rankfile:file=athanor.rankfile ");
}

TEST_F(Commands, ARankFileCountsCoresAsOpenMpiDoesBySocket) {
  LaunchRequest request;
  request.exclude_cores = "0,1";  // processors 0, 2, 4, … are on the first socket
  line("two_sockets", Flavour::kOpenMpi, request);
  EXPECT_TRUE(rankfile_.starts_with("rank 0=c101-001 slot=1-27\nrank 1=c101-001 slot=29-55\n")) << rankfile_;
}

TEST_F(Commands, VariablesThatRanksOfOtherHostsNeedAreNamedToOpenMpi) {
  auto here = machine("two_sockets");
  here.variables = {
      {"NCCL_DEBUG", "INFO"}, {"HOME", "/root"}, {"ATHANOR_MATMUL", "library"}, {"OMP_NUM_THREADS", "200"}};
  const auto said = line_of(plan_of(here, Flavour::kOpenMpi), here);
  EXPECT_SAYS(said, "-x OMP_NUM_THREADS=28 -x ATHANOR_MATMUL -x NCCL_DEBUG -x PATH");
  EXPECT_EQ(said.find("HOME"), said.npos);
}

TEST_F(Commands, AUsersThreadsHoldIfARankHasThatManyCores) {
  auto here = machine("two_sockets");
  here.variables["OMP_NUM_THREADS"] = "7";
  EXPECT_SAYS(line_of(plan_of(here, Flavour::kHydra), here), "-genv OMP_NUM_THREADS 7");
}

TEST_F(Commands, MoreRanksThanCoresAreNotBound) {
  LaunchRequest request;
  request.ranks.per_node = 57;
  EXPECT_SAYS(line("two_sockets", Flavour::kOpenMpi, request), "--oversubscribe --bind-to none");
  EXPECT_SAYS(line("two_sockets", Flavour::kSrun, request), "--overcommit --cpu-bind=none");
  EXPECT_SAYS(line("two_sockets", Flavour::kPals, request), "--cpu-bind none");
  EXPECT_SAYS(line("two_sockets", Flavour::kIntelMpi, request), "-genv I_MPI_PIN off");
  EXPECT_EQ(line("two_sockets", Flavour::kHydra, request).find("-bind-to"), std::string::npos);
}

TEST_F(Commands, OnAMachineThatIsNoHostNothingIsClaimedOfTheirCores) {
  auto here = machine("aurora");
  LaunchRequest request;
  request.ranks.per_node = 12;
  auto elsewhere = here;
  elsewhere.host = "login1";
  put_program(elsewhere, "train", "");
  put_program(elsewhere, "fake", "echo 'mpirun (Open MPI) 4.1.4'");
  request.allocation.host_file = write("hosts", "n1\nn2\n").string();
  request.command = {"train"};
  request.launcher = "fake";
  auto plan = make_plan(request, elsewhere);
  EXPECT_SAYS(line_of(plan, elsewhere), "-n 24 -H n1:12,n2:12 --map-by ppr:12:node --bind-to socket:overload-allowed");
  EXPECT_EQ(line_of(plan, elsewhere).find("OMP_NUM_THREADS"), std::string::npos);
  request.reserve_cores = 1;
  EXPECT_SAYS(refusal<ConfigError>([&] { make_plan(request, elsewhere); }), "their cores are not known");
}

TEST_F(Commands, OpenMpi4NoticesAHostThatNoLongerAnswersUnlessTheUserDecidesAboutThat) {
  auto here = machine("two_sockets");
  const std::string keepalive = "--mca oob_tcp_keepalive_time 10 --mca oob_tcp_keepalive_intvl 3";
  EXPECT_SAYS(line_of(plan_of(here, Flavour::kOpenMpi), here), keepalive);
  for (const Flavour other : {Flavour::kPrrte, Flavour::kHydra, Flavour::kSrun})
    EXPECT_EQ(line_of(plan_of(here, other), here).find("keepalive"), std::string::npos);
  auto plan = plan_of(here, Flavour::kOpenMpi);
  plan.is_one_machine = true;
  EXPECT_EQ(line_of(plan, here).find("keepalive"), std::string::npos);
  here.variables["OMPI_MCA_oob_tcp_keepalive_time"] = "300";
  EXPECT_EQ(line_of(plan_of(here, Flavour::kOpenMpi), here).find("keepalive"), std::string::npos);
}

TEST_F(Commands, OnlyTheRanksOfATrainingEndSoonAfterTheFirstOneUnderSlurm) {
  auto here = machine("two_sockets");
  auto plan = plan_of(here, Flavour::kSrun);
  EXPECT_EQ(line_of(plan, here).find("--wait"), std::string::npos);
  plan.is_training = true;
  EXPECT_SAYS(line_of(plan, here), " --wait=3 --disable-status");
}

TEST_F(Commands, UnderSlurmASpareGetsTheRanksOfTheHostWhosePlaceItTakes) {
  auto here = machine("two_sockets");
  auto plan = plan_of(here, Flavour::kSrun);
  plan.ranks.of_host = {1, 2};
  EXPECT_EQ(build_command(plan, here).rankfile, "");
  plan.has_spares_in_use = true;
  EXPECT_SAYS(line_of(plan, here),
              fmt::format("--nodes=2 --ntasks=3 --distribution=arbitrary --nodelist={} ", kRankfile));
  EXPECT_EQ(build_command(plan, here).rankfile, "c101-001\nother\nother\n");
}

TEST_F(Commands, SlotsThatDifferAreRefusedWhereALauncherCannotStartThem) {
  auto here = machine("two_sockets");
  auto plan = plan_of(here, Flavour::kPals);
  plan.ranks.of_host = {1, 2};
  EXPECT_SAYS(refusal<ConfigError>([&] { build_command(plan, here); }),
              "PALS starts the same number of ranks on each host, but the slots are c101-001:1,other:2");
  plan.launcher.flavour = Flavour::kSrun;
  EXPECT_SAYS(line_of(plan, here), "--nodes=2 --ntasks=3 --nodelist=c101-001,other");
}

TEST_F(Commands, SlotsThatDifferAreStartedByOpenMpiWithoutPpr) {
  auto here = machine("two_sockets");
  for (const Flavour flavour : {Flavour::kOpenMpi, Flavour::kPrrte}) {
    auto plan = plan_of(here, flavour);
    plan.ranks.of_host = {1, 2};
    const auto bound = line_of(plan, here);
    EXPECT_SAYS(bound, "-n 3 -H c101-001:1,other:2 ");
    EXPECT_EQ(bound.find("ppr"), bound.npos) << bound;
    EXPECT_EQ(rankfile_, "rank 0=c101-001 slot=0-27\nrank 1=other slot=0-27\nrank 2=other slot=28-55\n");
    plan.is_node_known = false;
    EXPECT_SAYS(line_of(plan, here), "-H c101-001:1,other:2 --map-by slot --bind-to ");
    plan.ranks.of_host = {2, 1};  // only the last one has fewer, which ppr allows
    EXPECT_SAYS(line_of(plan, here), "--map-by ppr:2:node --bind-to ");
  }
}

TEST_F(Commands, TheDryRunMayBePastedIntoAShell) {
  auto here = machine("frontier");
  const auto plan = plan_of(here, Flavour::kOpenMpi);
  const auto text = dry_run_text(plan, build_command(plan, here), 0);
  EXPECT_SAYS(text, "# hosts      2 hosts: frontier00042, other (");
  EXPECT_SAYS(text, "# devices    8 of AMD, on 8 cards gfx90a (/sys/class/kfd/kfd/topology)\n");
  EXPECT_SAYS(text, "# ranks      16 on 2 hosts, 8 each: one for each of 8 devices\n");
  EXPECT_SAYS(text, "cat >athanor.rankfile <<'END'\nrank 0=frontier00042 slot=48-55\n");
  EXPECT_TRUE(text.ends_with(" train run.toml --set 'a=b c'\n")) << text;
}

}  // namespace launcher_command_test
}  // namespace athanor::launch
