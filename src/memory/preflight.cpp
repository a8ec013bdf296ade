#include "memory/preflight.h"

#include <filesystem>

#include "arch/inventory.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "config/checks.h"
#include "config/training_stages.h"
#include "layout/memory.h"
#include "memory/device_memory.h"
#include "memory/memory_remedies.h"
#include "memory/rank_share.h"
#include "ops/device_choice.h"
#include "plan/rank_memory.h"

namespace athanor::inline memory {

namespace {

void resolve_with_manifest(RunConfig& config, const DataManifest& manifest, const std::string& path) {
  const auto seq_len = static_cast<int64_t>(manifest.seq_len), vocab_size = static_cast<int64_t>(manifest.vocab_size);
  if (config.data.seq_len == 0) config.data.seq_len = seq_len;
  ATHANOR_CHECK(
      config.data.seq_len == seq_len,
      "data.seq_len ({}) differs from that of {} ({}); set it to {}, or prepare the documents again with --seq-len {}",
      config.data.seq_len, path, seq_len, seq_len, config.data.seq_len);
  ATHANOR_CHECK(seq_len <= config.model.max_position_embeddings,
                "the instances of {} have {} tokens, more than model.max_position_embeddings ({}); raise that", path,
                seq_len, config.model.max_position_embeddings);
  ATHANOR_CHECK(vocab_size <= config.model.vocab_size,
                "the tokenizer of {} has {} tokens, more than model.vocab_size ({}); raise that to at least {}{}", path,
                vocab_size, config.model.vocab_size, vocab_size,
                config.model.from.empty() ? "" : ", and let checkpoint.allow_model_change contain \"vocab_size\"");
  const auto overflows = find_overflows(config);
  ATHANOR_CHECK(overflows.empty(), "{}", join(overflows, "\n"));
}

}  // namespace

void resolve_with_data(RunConfig& config, const Dataset& train) {
  resolve_with_manifest(config, train.manifest(), train.folder().string());
}

void take_seq_len_of_data(RunConfig& config) {
  if (config.data.seq_len > 0) return;
  const auto sources = training_stages(config).front().config.data.sources;
  ATHANOR_CHECK(!sources.empty(),
                "data.seq_len is 0, which takes it from the data, and data.path is empty: set one of the two");
  const std::string& path = sources.front().path;
  ATHANOR_CHECK(std::filesystem::exists(path),
                "data.seq_len is 0, which takes it from the data, and {} does not exist: prepare that, or give --set "
                "data.seq_len=1024, or another length",
                path);
  resolve_with_manifest(config, read_data_manifest(path), path);
}

// Ranks differ by their stages and by Muon's matrices: the sum over the ranks of a host is what counts. Collective.
double sum_over_host(comm::World& world, double own) {
  const Tensor mine = at::full({1}, own, at::kDouble), all = at::empty({world.size()}, at::kDouble);
  world.all().all_gather(all, mine).wait();
  double sum = 0;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (world.hosts()[static_cast<size_t>(rank)] == world.host()) sum += all.const_data_ptr<double>()[rank];
  }
  return sum;
}

void check_memory(const RunConfig& config, comm::World& world, const Layout& layout, at::Device device) {
  if (ops::facts_of(device)) return check_device_memory(config, world, device);  // it has memory of its own
  const MemoryNeed own = memory_if_known(config, layout, world.rank());
  const double all = sum_over_host(world, own.total());
  const auto available = static_cast<double>(available_memory_bytes());
  // Free memory does not have what the processes take already. Processes of one program have about the same.
  const auto taken = static_cast<double>(resident_bytes());
  const int ranks = count_ranks_of_host(world);
  const auto more_ranks = [&] {
    RunConfig plain = config;
    plain.train.cuda_graphs = false;  // there are none on a CPU
    const TightJob job{world.size(), ranks, available / ranks, {}};
    const auto fitting = fewest_ranks(plain, job);
    return fitting ? fmt::format("; {}, at most {} of them on a host like this, would fit", fitting->text(world.size()),
                                 ranks)
                   : std::string();
  };
  const auto each = [&](double all_of_host) {
    return ranks > 1 ? fmt::format(" on rank {}, {} on the {} ranks of {}", world.rank(), format_bytes(all_of_host),
                                   ranks, world.host())
                     : "";
  };
  const std::string parts = fmt::format(
      "{} of weights, gradients and optimizer state, {} of activations, {} of scratch{}{}",
      format_bytes(own.state_bytes), format_bytes(own.activation_bytes), format_bytes(own.transient_bytes),
      describe_update(own),
      own.staging_bytes > 0 ? fmt::format(", {} for a copy to write checkpoints from", format_bytes(own.staging_bytes))
                            : "");
  ATHANOR_CHECK(all <= available,
                "this run needs about {} of memory{} ({}) in addition to the {} that the program has taken, and {} are "
                "free; {}{}{}",
                format_bytes(own.total()), each(all), parts, format_bytes(taken), format_bytes(available),
                own.update_is_peak() ? "more ranks share the matrices of Muon's update, a smaller model or more ranks "
                                       "lower the rest"
                                     : "a smaller train.micro_batch_size or parallelism.recompute lowers the "
                                       "activations, a smaller model or more ranks the rest",
                own.staging_bytes > 0 ? "; checkpoint.async = false saves the copy" : "", more_ranks());
  log::info("memory: about {} needed{} ({} for the program itself with its libraries, taken already; {}), {} free",
            format_bytes(taken + own.total()), each(all + taken * ranks), format_bytes(taken), parts,
            format_bytes(available));
}

void refuse_zero_routers(const RunConfig& config, const ParameterStore& parameters) {
  for (const BucketEntry& entry : parameters.table()) {  // the gate of shared experts, of one row, may be zero
    if (entry.role != Role::kRouter || entry.global_shape[0] == 1) continue;
    ATHANOR_CHECK_CHECKPOINT(parameters.weight(entry.name).value.count_nonzero().item<int64_t>() > 0,
                             "{} is all zero: every token would go to the first {} experts and none would learn; "
                             "initialise it, or start from another folder",
                             entry.name, config.model.num_experts_per_tok);
  }
}

void refuse_unbalanceable(const RunConfig& config) {
  const auto problems = find_balance_contradictions(config);
  ATHANOR_CHECK(problems.empty(), "{}", join(problems, "\n"));
}

double expected_first_loss(const ModelConfig& model, double width_ratio) {
  const double deviation = model.initializer_range * width_ratio;
  const double logit_variance = deviation * deviation * static_cast<double>(model.hidden_size);
  return std::log(static_cast<double>(model.vocab_size)) + 0.5 * logit_variance;
}

void report_first_loss(const ModelConfig& model, double width_ratio, double loss) {
  const double expected = expected_first_loss(model, width_ratio);
  // A tied output layer sees its own input token's embedding; half a nat leaves room for that and for small batches.
  constexpr double kTolerance_nats = 0.5;
  if (std::abs(loss - expected) <= kTolerance_nats) return;
  log::warn_on_all(
      "the first loss is {:.4f}; a fresh model with {} tokens should begin near {:.4f} (ln(vocab) {:.4f}): look at "
      "initializer_range, or whether data and tokenizer belong together",
      loss, model.vocab_size, expected, std::log(static_cast<double>(model.vocab_size)));
}

}  // namespace athanor::inline memory
