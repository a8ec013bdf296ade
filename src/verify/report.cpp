#include "verify/report.h"

#include "base/text.h"
#include "config/precision.h"
#include "layout/stages.h"
#include "verify/small_model.h"

namespace athanor::inline verify {
namespace {

constexpr size_t kMostFaults = 12;

// The end of a parameter's name is more informative.
std::string shorten(const std::string& name, size_t length) {
  if (name.size() <= length) return name;
  return name.starts_with("model.") ? "…" + name.substr(name.size() - length + 1) : name.substr(0, length - 1) + "…";
}

std::string row(const Comparison& c) {
  const std::string quantity = fmt::format("{} ({})", c.quantity, c.compared);
  const std::string name = c.step > 0 ? fmt::format("{} @ {}", shorten(c.name, 46), c.step) : shorten(c.name, 46);
  if (c.error == 0) return fmt::format("{:<30} {:<52} {:>9}\n", quantity, "", "equal");
  if (c.bound == 0) return fmt::format("{:<30} {:<52} {:>9.1e} {:>9}\n", quantity, name, c.error, "equal");
  return fmt::format("{:<30} {:<52} {:>9.1e} {:>9.1e} {:>8.3g}\n", quantity, name, c.error, c.bound, c.share());
}

// Returns "pipeline 4 (1f1b, layers 2 1 1 2)".
std::string describe_pipeline(const RunConfig& small) {
  const ParallelismConfig& p = small.parallelism;
  std::string layers;
  for (const StageLayers& stage : split_stages(small.model, p)) layers += fmt::format(" {}", stage.num_layers());
  return fmt::format("pipeline {} ({}, layers{})", p.pipeline_parallel_degree, p.pipeline_schedule.word(), layers);
}

}  // namespace

std::string comparison_table(const Comparisons& comparisons, Reference reference) {
  std::string text =
      fmt::format("{:<30} {:<52} {:>9} {:>9} {:>8}\n",
                  fmt::format("compared with {}", reference == Reference::kPortable ? "portable" : "one rank"),
                  "worst @ step", "error", "bound", "share");
  for (const auto& comparison : comparisons.worst) text += row(comparison);
  const auto& faults = comparisons.faults;
  for (size_t i = 0; i < std::min(faults.size(), kMostFaults); ++i) text += "FAIL " + faults[i] + "\n";
  if (faults.size() > kMostFaults) text += fmt::format("FAIL … and {} more\n", faults.size() - kMostFaults);
  return text;
}

std::string describe_layout(const RunConfig& small, int world_size) {
  const Layout layout(small, world_size);
  const ParallelismConfig& p = small.parallelism;
  std::string text = fmt::format("{} rank{}: replicate {} × shard {}, expert {}", world_size,
                                 world_size == 1 ? "" : "s", layout.replicate(), layout.shard(), layout.expert());
  if (layout.tensor() > 1) {
    text += fmt::format(", tensor {}{}", layout.tensor(), p.sequence_parallel ? " with sequence_parallel" : "");
  }
  if (layout.pipeline() > 1) text += ", " + describe_pipeline(small);
  return text + "; sharding " + p.sharding.word();
}

std::string describe_small_run(const RunConfig& small, int world_size) {
  const Layout layout(small, world_size);
  const ModelConfig& m = small.model;
  std::string text = describe_layout(small, world_size) + "\n";
  text += fmt::format("{}: hidden {}, {} layers, {} heads ({} of keys), vocabulary {}", m.family, m.hidden_size,
                      m.num_hidden_layers, m.num_attention_heads, m.kv_heads(), m.vocab_size);
  if (m.is_moe()) {
    text += fmt::format(", {} experts of {}, {} for a token; balance {}, dispatch {}", m.num_experts,
                        m.expert_intermediate_size(), m.num_experts_per_tok, small.moe.balance.word(),
                        small.moe.dispatch.word());
  }
  text +=
      fmt::format("\n{} steps of {} sequences of {} tokens, {} microbatches on each data rank, {} gradient buckets; {}",
                  small.train.steps, small.train.global_batch_size, small.data.seq_len, layout.microbatches(),
                  count_buckets(small, layout), small.train.dtype);
  if (precision_of(small).rounds_gradients()) text += ", gradients reduced in " + small.train.reduce_dtype;
  return text + "\n";
}

}  // namespace athanor::inline verify
