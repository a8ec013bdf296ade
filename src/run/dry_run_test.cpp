// Compares a dry run of a rank with what that rank holds and sends.

#include "run/dry_run.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/random.h"
#include "comm/thread_ranks.h"
#include "model/initialize.h"
#include "train/train_step.h"

namespace athanor::dry_run_test {
namespace {

RunConfig config_of(const std::string& sharding, const std::string& reduce_dtype) {
  RunConfig config;
  config.model.family = "olmoe";
  config.model.hidden_size = 64;
  config.model.num_hidden_layers = 4;
  config.model.num_attention_heads = 4;
  config.model.intermediate_size = 48;
  config.model.num_experts = 8;
  config.model.num_experts_per_tok = 2;
  config.model.vocab_size = 300;
  config.data.seq_len = 128;
  config.train.micro_batch_size = 4;
  config.train.global_batch_size = 16;
  config.train.reduce_dtype = reduce_dtype;
  config.train.num_threads = 1;
  config.moe.dispatch = "all_to_all";
  config.moe.balance = "swipe";
  auto& p = config.parallelism;
  p.data_parallel_shard_degree = 2;
  p.expert_parallel_degree = 2;
  p.tensor_parallel_degree = 2;
  p.pipeline_parallel_degree = 2;
  p.sharding = sharding;
  p.bucket_mb = 0.05;
  return config;
}

RunConfig with(const std::string& optimizer) {
  RunConfig config = config_of("ep_aware", "float32");
  config.optimizer.name = optimizer;
  config.optimizer.hessian_interval = 1;
  return config;
}

Batch batch_of(const RunConfig& config) {
  const CounterRandom random(1, "dry run");
  const int64_t sequences = config.train.global_batch_size, seq_len = config.data.seq_len;
  Batch batch{sequences, seq_len, std::vector<int32_t>(static_cast<size_t>(sequences * seq_len)), {}, {}};
  for (size_t i = 0; i < batch.tokens.size(); ++i) batch.tokens[i] = static_cast<int32_t>(random.u64(i) % 300);
  return batch;
}

struct Real {
  int64_t state_bytes = 0;
  size_t num_buckets = 0;
  std::map<std::string, double> sent;        // by group
  std::map<std::string, int64_t> in_flight;  // by group
};

std::vector<Real> run_ranks_of(const RunConfig& config, int world_size) {
  std::vector<Real> ranks(static_cast<size_t>(world_size));
  const Batch batch = batch_of(config);
  comm::WorldOptions options;
  options.check = config.parallelism.check_collectives;
  const auto one_rank = [&](comm::World& world) {
    at::set_num_threads(1);
    Mesh mesh(Layout(config, world_size), world);
    TrainState state(config, {}, mesh);
    initialize_parameters(config.model, 1, state.model.parameters);
    for (const auto& [kind, group] : mesh.groups()) group->reset_traffic();
    train_step(state, batch);
    state.model.gatherer.wait_all();
    Real& own = ranks[static_cast<size_t>(world.rank())];
    for (const Tensor& tensor :
         {state.model.parameters.compute(), state.model.parameters.grad(), state.model.parameters.master_low()})
      own.state_bytes += static_cast<int64_t>(tensor.nbytes());
    own.state_bytes += state.optimizer.set.state_bytes();
    own.num_buckets = state.model.parameters.buckets().size();
    for (const auto& [kind, group] : mesh.groups()) {
      own.sent[group_name(kind)] = static_cast<double>(group->traffic().bytes());
      own.in_flight[group_name(kind)] = group->traffic().most_in_flight;
    }
  };
  comm::run_ranks(world_size, one_rank, options);
  return ranks;
}

TEST(DryRun, OfEachRankSaysWhatItHoldsAndSends) {
  for (const auto& config : {config_of("ep_aware", "float32"), config_of("optimizer", "bfloat16"), with("lamb"),
                             with("muon"), with("sophiag")}) {
    SCOPED_TRACE(config.optimizer.name);
    const auto ranks = run_ranks_of(config, 8);
    for (int rank = 0; rank < 8; ++rank) {
      const Real& real = ranks[static_cast<size_t>(rank)];
      const DryRun dry = dry_run(config, 8, rank);
      EXPECT_EQ(dry.state.total(), real.state_bytes) << rank;
      EXPECT_EQ(dry.num_buckets, real.num_buckets) << rank;
      std::map<std::string, double> sent;
      for (const SentLine& line : dry.sent) sent[line.group] += line.bytes;
      for (const auto& [group, bytes] : real.sent)
        EXPECT_NEAR(sent[group], bytes, 0.05 * bytes + 1024) << "rank " << rank << ", " << group;
    }
  }
}

TEST(DryRun, SaysHowManyCollectivesOfAGroupAreInFlightAtMost) {
  for (const bool check : {false, true}) {
    RunConfig config = config_of("ep_aware", "float32");
    config.parallelism.bucket_mb = 1e-6;  // a bucket for each parameter
    config.parallelism.check_collectives = check;
    const auto ranks = run_ranks_of(config, 8);
    for (int rank = 0; rank < 8; ++rank) {
      const DryRun dry = dry_run(config, 8, rank);
      const auto in_flight = dry.collectives_in_flight();
      ASSERT_TRUE(in_flight.contains("data")) << rank;
      for (const auto& [group, most] : in_flight) {
        // While weights are gathered, a step adds up how many of them changed, which is one more collective.
        const int64_t real = ranks[static_cast<size_t>(rank)].in_flight.at(group);
        EXPECT_GE(real, most) << rank << ", " << group;
        EXPECT_LE(real, most + (check ? 2 : 1)) << rank << ", " << group;
      }
      EXPECT_GE(in_flight.at("data"), check ? 16 : 8);
      const auto json = nlohmann::json::parse(to_json(dry, config, 8));
      EXPECT_EQ(json.at("collectives_in_flight").at("data"), in_flight.at("data"));
      EXPECT_NE(report(dry, config, 8).find("in flight"), std::string::npos);
    }
  }
}

TEST(DryRun, FindsTheRankThatNeedsMostAndRefusesWhatDoesNotFit) {
  const RunConfig config = config_of("ep_aware", "float32");
  const DryRun fullest = dry_run(config, 8, -1);
  for (int rank = 0; rank < 8; ++rank) EXPECT_LE(dry_run(config, 8, rank).total_bytes(), fullest.total_bytes());
  EXPECT_THROW(dry_run(config, 12, -1), ConfigError);
  EXPECT_THROW(dry_run(config, 8, 8), ConfigError);
}

}  // namespace
}  // namespace athanor::dry_run_test
