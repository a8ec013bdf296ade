#include "plan/played_step.h"

#include <utility>

#include "ops/cpu_allocator.h"
#include "train/microbatch.h"
#include "train/train_step.h"

namespace athanor::inline plan {
namespace {

comm::WorldOptions world_without_peers(const RunConfig& config, const PlayedRank& which) {
  comm::WorldOptions options;
  options.ranks_per_node = static_cast<int>(config.topology.ranks_per_node);
  options.nodes_per_supernode = static_cast<int>(config.topology.nodes_per_supernode);
  options.fake_rank = which.rank;
  options.fake_size = which.ranks;
  return options;
}

// The rank's part of a batch of documents that are as long as an instance.
Batch batch_of(const RunConfig& config, const Mesh& mesh) {
  const int64_t seq_len = config.data.seq_len;
  std::vector<int64_t> held = sequences_of(mesh.layout(), mesh.data_rank(), config.train.micro_batch_size);
  std::vector<int32_t> tokens(held.size() * static_cast<size_t>(seq_len), 1);
  return {config.train.global_batch_size, seq_len, std::move(tokens), {}, std::move(held)};
}

std::vector<double> equal_shares(const ModelConfig& model) {
  const auto experts = static_cast<size_t>(model.num_experts);
  return std::vector<double>(experts, 1 / static_cast<double>(model.num_experts));
}

bool is_update(const PlayedPhase& part) {
  return part.phase == board::Phase::kUpdate || part.phase == board::Phase::kGather;
}

// Returns the phase with the highest peak among those of the update, or the others.
PlayedPhase fullest(const PlayRecord& record, bool of_update) {
  PlayedPhase most{board::Phase::kIdle, 0, 0, 0};
  for (const PlayedPhase& part : record.phases())
    if (is_update(part) == of_update && part.peak_bytes > most.peak_bytes) most = part;
  return most;
}

// libtorch's allocators of devices round to this.
int64_t device_block(int64_t bytes) {
  constexpr int64_t kBlock = 512;
  return (bytes + kBlock - 1) / kBlock * kBlock;
}

int64_t host_block(int64_t bytes) { return static_cast<int64_t>(ops::block_bytes(static_cast<size_t>(bytes))); }

}  // namespace

PlayedStep::PlayedStep(ops::PlayedPlace place) : record(is_device(place) ? device_block : host_block) {}

int64_t PlayedStep::update_bytes() const { return fullest(record, true).peak_bytes - kept_bytes; }
int64_t PlayedStep::gradient_bytes() const { return fullest(record, false).peak_bytes - kept_bytes; }
int64_t PlayedStep::activation_bytes() const { return fullest(record, false).bytes_before - kept_bytes; }

std::unique_ptr<PlayedStep> play_step(const RunConfig& run, const PlayedRank& which) {
  RunConfig config = run;
  // What only looks at a step, and needs values, is no part of it.
  config.metrics.update_watch_interval = config.metrics.noise_scale_interval = config.metrics.layer_statistics = 0;
  config.train.cuda_graphs = false;
  config.optimizer.qk_clip = 0;  // it reads logits; it holds one fp32 number for each query of a layer
  if (config.moe.dispatch == DispatchKind::kAuto) config.moe.dispatch = DispatchKind::kAllToAll;
  std::vector<double> expert_shares = which.expert_shares;
  if (expert_shares.empty() && config.model.is_moe()) expert_shares = equal_shares(config.model);
  auto played = std::make_unique<PlayedStep>(which.place);
  PlayRecord& record = played->record;
  const Layout layout(config, which.ranks);
  const auto world = comm::World::open(world_without_peers(config, which));
  Mesh mesh(layout, *world);
  if (is_device(which.place)) mesh.use(at::kMeta, config.parallelism.device_sums);
  record.watch(mesh);
  auto play = std::make_unique<ops::Play>(
      record,
      ops::PlayedNumbers{std::move(expert_shares), config.model.num_experts_per_tok, config.model.vocab_size,
                         config.moe.balance == Balance::kForcedUniform, which.threads},
      which.place);
  TrainState state(config, {}, mesh, {.device = at::kMeta, .wrap_stage = [](Stage&, const StageLayers&, const Mesh&) {
                                        return nullptr;
                                      }});
  played->kept_bytes = record.bytes_in_use();
  record.begin();
  for (const auto& [kind, group] : mesh.groups()) group->reset_traffic();
  state.phases.watcher = &record;
  train_step(state, batch_of(config, mesh));
  state.model.gatherer.wait_all();
  for (const auto& [kind, group] : mesh.groups()) played->in_flight[kind] = group->traffic().most_in_flight;
  play.reset();  // the end of the state is no part of the step
  return played;
}

}  // namespace athanor::inline plan
