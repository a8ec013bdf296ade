// verify with the layout on devices that the host plays, one for each rank, and the reference on the CPU.

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"
#include "base/testing/folder_test.h"
#include "comm/testing/guarded_groups.h"
#include "train/testing/device_case.h"
#include "verify/noise.h"
#include "verify/plants/names.h"
#include "verify/verify.h"

namespace athanor::device_verify_test {
namespace {

using guarded::Order;

struct Degrees {
  int data = 1, expert = 1, tensor = 1, pipeline = 1, replicate = 1;
  bool sequence = false;
  const char* dispatch = "allgather";
  int ranks() const { return replicate * data * tensor * pipeline; }
};

RunConfig config_of(const Degrees& d) {
  RunConfig c = small_device_run("olmoe", "bfloat16");
  c.model.hidden_size = 32;
  c.model.num_hidden_layers = 2;
  c.model.intermediate_size = 16;
  c.model.vocab_size = 96;
  c.model.initializer_range = 0.1;
  c.model.tie_word_embeddings = d.pipeline > 1;
  c.data.seq_len = 16;
  c.train.micro_batch_size = 1;
  c.train.global_batch_size = int64_t{2} * d.replicate * d.data * d.pipeline;
  c.train.num_threads = 1;
  c.moe.dispatch = d.dispatch;
  c.moe.router_z_loss_coef = 0.1;
  c.parallelism.data_parallel_replicate_degree = d.replicate;
  c.parallelism.data_parallel_shard_degree = d.data;
  c.parallelism.expert_parallel_degree = d.expert;
  c.parallelism.tensor_parallel_degree = d.tensor;
  c.parallelism.pipeline_parallel_degree = d.pipeline;
  c.parallelism.sequence_parallel = d.sequence;
  c.parallelism.sharding = d.replicate > 1 ? "hierarchical" : "ep_aware";
  c.parallelism.bucket_mb = 0.01;
  return c;
}

class VerifyOnDevices : public FolderTest {
 protected:
  // Returns what every rank gets.
  int verify(const RunConfig& config, const Degrees& d, const std::vector<std::string>& dtypes,
             const VerifyRequest& given = {}, const Order& order = {}) {
    std::vector<TypedRun> runs;
    for (const std::string& dtype : dtypes) runs.push_back({make_small_run(config, d.ranks(), {2, dtype, true}), {}});
    std::vector<int> codes(static_cast<size_t>(d.ranks()), -1);
    comm::run_device_ranks(d.ranks(), [&](comm::World& world, at::Device device) {
      guarded::queues().set_order(order);
      VerifyRequest request = given;
      request.device = device;
      request.same_process = true;
      codes[static_cast<size_t>(world.rank())] = run_verify(runs, request, world);
      guarded::queues().synchronize_all();
      world.all().barrier();
      guarded::queues().set_order({});
    });
    for (const int code : codes) EXPECT_EQ(code, codes[0]);
    return codes[0];
  }
  int verify(const Degrees& d, const std::vector<std::string>& dtypes, const VerifyRequest& given = {},
             const Order& order = {}) {
    return verify(config_of(d), d, dtypes, given, order);
  }
  void reduce_in_bfloat16(const std::vector<std::string>& dtypes);
  void find_planted(const plants::PlantName& plant, const std::string& dtype);
};
class TestAllVerifyOnDevices : public VerifyOnDevices {};

const std::vector<std::string> kBothTypes = {"float32", "bfloat16"};

// Each axis and dispatch in one of the types, since a verification in bf16 takes six times as long.
TEST_F(VerifyOnDevices, ALayoutAgreesWithOneRankOnTheCpuInBothTypes) {
  EXPECT_EQ(verify({}, kBothTypes), 0) << "one rank";
  EXPECT_EQ(verify({.data = 4, .expert = 2}, {"float32"}), 0);
  EXPECT_EQ(verify({.data = 2, .expert = 2, .dispatch = "all_to_all"}, {"bfloat16"}), 0);
  EXPECT_EQ(verify({.tensor = 2, .sequence = true}, {"bfloat16"}), 0);
  EXPECT_EQ(verify({.tensor = 2, .pipeline = 2}, {"float32"}), 0);
}
TEST_F(TestAllVerifyOnDevices, ALayoutAgreesWithOneRankOnTheCpuInBothTypes) {
  EXPECT_EQ(verify({}, kBothTypes), 0) << "one rank";
  EXPECT_EQ(verify({.data = 4, .expert = 2}, kBothTypes), 0);
  EXPECT_EQ(verify({.data = 2, .expert = 2, .dispatch = "all_to_all"}, kBothTypes), 0);
  EXPECT_EQ(verify({.tensor = 2, .sequence = true}, kBothTypes), 0);
  EXPECT_EQ(verify({.tensor = 2, .pipeline = 2}, kBothTypes), 0);
}

// Devices without Athanor's kernels compute in libtorch's ops.
TEST_F(VerifyOnDevices, WithoutKernelsALayoutAgreesToo) {
  guarded::set_kernels(false);
  EXPECT_EQ(verify({}, {"bfloat16"}), 0) << "one rank";
  EXPECT_EQ(verify({.data = 2, .expert = 2, .dispatch = "all_to_all"}, {"float32"}), 0);
  EXPECT_EQ(verify({.tensor = 2, .pipeline = 2}, {"float32"}), 0);
  guarded::set_kernels(true);
}
TEST_F(TestAllVerifyOnDevices, WithoutKernelsALayoutAgreesToo) {
  guarded::set_kernels(false);
  EXPECT_EQ(verify({}, kBothTypes), 0) << "one rank";
  EXPECT_EQ(verify({.data = 2, .expert = 2}, kBothTypes), 0);
  EXPECT_EQ(verify({.data = 2, .expert = 2, .dispatch = "all_to_all"}, {"float32"}), 0);
  EXPECT_EQ(verify({.tensor = 2, .pipeline = 2}, kBothTypes), 0);
  guarded::set_kernels(true);
}

void VerifyOnDevices::reduce_in_bfloat16(const std::vector<std::string>& dtypes) {
  const Degrees d{.data = 2, .expert = 2, .replicate = 2};
  RunConfig config = config_of(d);
  config.train.reduce_dtype = "bfloat16";
  EXPECT_EQ(verify(config, d, dtypes), 0);
}
// In fp32, since a model in bf16 rounds as much as the sums.
TEST_F(VerifyOnDevices, GradientsThatAreReducedInBfloat16Agree) { reduce_in_bfloat16({"float32"}); }
TEST_F(TestAllVerifyOnDevices, GradientsThatAreReducedInBfloat16Agree) { reduce_in_bfloat16(kBothTypes); }

TEST_F(VerifyOnDevices, TwoRunsHaveTheSameBitsAndResumingIsVerifiedInDrawnOrdersOfTheStreams) {
  const Degrees d{.data = 2, .expert = 2};
  EXPECT_EQ(verify(d, {"bfloat16"}, {.twice = true}, {Order::Kind::kDrawn, 5}), 0);
  const RunConfig config = config_of(d);
  std::vector<TypedRun> runs = {{make_small_run(config, 2, {2, "float32", true}), {}}};
  RunConfig then = runs[0].small;
  then.parallelism.data_parallel_shard_degree = 1;
  then.parallelism.expert_parallel_degree = 1;
  then.parallelism.tensor_parallel_degree = 2;
  runs[0].then = then;
  comm::run_device_ranks(2, [&](comm::World& world, at::Device device) {
    VerifyRequest request;
    request.device = device;
    request.same_process = true;
    ATHANOR_ASSERT(run_verify(runs, request, world) == 0);
    guarded::queues().synchronize_all();
  });
}

TEST_F(VerifyOnDevices, EachOptimizerSUpdatesAreThoseOfItsReplay) {
  const Degrees d{.data = 2, .expert = 2};
  for (const char* name : {"sgd", "lamb", "sophiag", "muon"}) {
    RunConfig config = config_of(d);
    config.optimizer.name = name;
    EXPECT_EQ(verify(config, d, {"float32"}), 0) << name;
  }
}

// Portable forms in fp64 share no code with the run.
TEST_F(VerifyOnDevices, OneRankAgreesWithPortableForms) {
  EXPECT_EQ(verify({}, {"float32"}, {.reference = Reference::kPortable}), 0);
}

// Verifies with the fault, in a layout that has what it needs.
void VerifyOnDevices::find_planted(const plants::PlantName& plant, const std::string& dtype) {
  const Degrees data{.data = 4, .expert = 2, .dispatch = "all_to_all"}, tensor{.tensor = 2}, stages{.pipeline = 2},
      sequence{.tensor = 2, .sequence = true};
  const std::string name(plant.name);
  const Degrees& d = name.starts_with("tensor") || name.ends_with("tensor_ranks") ? tensor
                     : name.starts_with("pipeline")                               ? stages
                     : name.starts_with("sequence")                               ? sequence
                                                                                  : data;
  RunConfig config = config_of(d);
  if (!plant.optimizer.empty()) config.optimizer.name = plant.optimizer;
  if (plant.optimizer == "sophiag") config.optimizer.hessian_interval = 1;
  EXPECT_EQ(verify(config, d, {dtype}, {.plant = name}), 1) << name << " in " << dtype;
}

// One for each axis, and one of an optimizer. That each fault changes the numbers of a device is tested in
// verify/device_faults_test.cpp, and that each is found on CPUs in tests/interop/test_verify.py.
TEST_F(VerifyOnDevices, APlantedFaultOfEachAxisIsFound) {
  const std::map<std::string, std::string> types = {{"grad.wrong_group", "float32"},
                                                    {"muon.stale_home", "float32"},
                                                    {"pipeline.wrong_dtype", "float32"},
                                                    {"sequence.norm_unsynchronised", "float32"},
                                                    {"tensor.missing_all_reduce", "float32"}};
  size_t num_found = 0;
  for (const auto& plant : plants::kPlantNames) {
    const auto type = types.find(std::string(plant.name));
    if (type == types.end()) continue;
    find_planted(plant, type->second);
    ++num_found;
  }
  EXPECT_EQ(num_found, types.size());
  EXPECT_EQ(verify({}, {"bfloat16"}, {.plant = "router.count_twice"}), 1) << "one rank";
}

// One of each kind, since a verification in bf16 takes six times as long.
const std::set<std::string> kInBf16 = {"grad.wrong_scale", "loss.divided_twice", "norm.one_shard",
                                       "pipeline.wrong_dtype", "tensor.missing_all_reduce"};

TEST_F(TestAllVerifyOnDevices, EachPlantedFaultIsFound) {
  for (const auto& plant : plants::kPlantNames) {
    find_planted(plant, "float32");
    if (kInBf16.contains(std::string(plant.name))) find_planted(plant, "bfloat16");
  }
  EXPECT_EQ(verify({}, {"bfloat16"}, {.plant = "router.count_twice"}), 1) << "one rank";
}

TEST(NoiseOnDevices, BoundsGrowByTheRoundingsThatTheirLibrariesAdd) {
  const Degrees d{.data = 8};
  RunConfig config = make_small_run(config_of(d), 8, {2, "bfloat16", true});
  config.train.reduce_dtype = "bfloat16";
  const double unit = 0x1p-8;
  EXPECT_DOUBLE_EQ(Noise(config, 8).reduction_variance(), 3 * unit * unit / 3);
  EXPECT_DOUBLE_EQ(Noise(config, 8, Reference::kOneRank, at::kCUDA).reduction_variance(), 8 * unit * unit / 3);
  EXPECT_DOUBLE_EQ(Noise(config, 2, Reference::kOneRank, at::kCUDA).reduction_variance(), 3 * unit * unit / 3);
  EXPECT_EQ(Noise(config, 8).layout_factor(), 1);
  // 17 results of each of two layers and 3 of the output are stored in forward, counted twice, and as many in backward;
  // on a device one more of a layer in forward, and three more in backward. What is added in fp32 is next to nothing.
  const double one = Noise(config, 8, Reference::kOneRank, at::kCUDA).layout_factor();
  EXPECT_NEAR(one, 1 + (2 * 2 + 2 * 3) / (3.0 * (2 * 17 + 3)), 1e-3);
  config.parallelism.tensor_parallel_degree = 8;
  EXPECT_GT(Noise(config, 1, Reference::kOneRank, at::kCUDA).layout_factor() / one, Noise(config, 1).layout_factor());
  config.train.dtype = config.train.reduce_dtype = "float32";
  EXPECT_LT(Noise(config, 8, Reference::kOneRank, at::kCUDA).gradient(), 1.04 * Noise(config, 8).gradient());
}

}  // namespace
}  // namespace athanor::device_verify_test
