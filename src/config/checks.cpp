#include "config/checks.h"

#include <fmt/core.h>

namespace athanor {
namespace {

// Collects the messages of the conditions that do not hold.
class Findings {
 public:
  template <class... Args>
  void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
    if (!condition) lines_.push_back(fmt::vformat(format, fmt::make_format_args(args...)));
  }
  std::vector<std::string> take() { return std::move(lines_); }

 private:
  std::vector<std::string> lines_;
};

void check_attention(const ModelConfig& m, Findings& found) {
  found.require(m.hidden_size % m.num_attention_heads == 0,
                "model.num_attention_heads ({}) must divide model.hidden_size ({})", m.num_attention_heads,
                m.hidden_size);
  if (m.hidden_size % m.num_attention_heads != 0) return;
  const int64_t head_dim = m.head_dim(), kv_heads = m.kv_heads();
  found.require(
      head_dim % 2 == 0,
      "model.hidden_size ({}) / model.num_attention_heads ({}) = {} must be even, since rotary positions turn "
      "pairs; use fewer or more heads",
      m.hidden_size, m.num_attention_heads, head_dim);
  found.require(m.num_attention_heads % kv_heads == 0,
                "model.num_key_value_heads ({}) must divide model.num_attention_heads ({})", kv_heads,
                m.num_attention_heads);
}

void check_experts(const ModelConfig& m, Findings& found) {
  if (m.family == "olmo") {
    found.require(m.num_experts == 0,
                  "model.num_experts ({}): family olmo is dense; set it to 0, or model.family to olmoe", m.num_experts);
    return;
  }
  found.require(m.num_experts >= 1,
                "model.num_experts: family olmoe needs at least 1; set it, or model.family to olmo");
  found.require(m.num_experts_per_tok >= 1 && m.num_experts_per_tok <= std::max<int64_t>(m.num_experts, 1),
                "model.num_experts_per_tok ({}) must be between 1 and model.num_experts ({})", m.num_experts_per_tok,
                m.num_experts);
}

}  // namespace

std::vector<std::string> find_contradictions(const ModelConfig& model) {
  Findings found;
  check_attention(model, found);
  check_experts(model, found);
  return found.take();
}

std::vector<std::string> find_contradictions(const RunConfig& config) {
  // A model that comes from a folder brings its own fields; they are checked when it is read.
  auto lines = config.model.from.empty() ? find_contradictions(config.model) : std::vector<std::string>{};
  Findings found;
  const auto& [model, data, train, optimizer, moe, checkpoint, metrics, parallelism] = config;
  found.require(train.global_batch_size % train.micro_batch_size == 0,
                "train.micro_batch_size ({}) must divide train.global_batch_size ({})", train.micro_batch_size,
                train.global_batch_size);
  found.require(data.seq_len != 1, "data.seq_len (1): an instance needs at least 2 tokens to have a target");
  found.require(
      !model.from.empty() || data.seq_len <= model.max_position_embeddings,
      "data.seq_len ({}) is beyond model.max_position_embeddings ({}); raise that or prepare shorter instances",
      data.seq_len, model.max_position_embeddings);
  found.require(optimizer.warmup_steps <= train.steps, "optimizer.warmup_steps ({}) is beyond train.steps ({})",
                optimizer.warmup_steps, train.steps);
  found.require(optimizer.min_lr <= optimizer.lr, "optimizer.min_lr ({}) is above optimizer.lr ({})", optimizer.min_lr,
                optimizer.lr);
  found.require(
      moe.aux_scope != "transformers" || parallelism.pipeline_parallel_degree == 1,
      "moe.aux_scope \"transformers\" pools over all layers and cannot be cut by pipeline_parallel_degree ({}); "
      "use \"sequence\"",
      parallelism.pipeline_parallel_degree);
  found.require(model.num_experts == 0 || model.num_experts % parallelism.expert_parallel_degree == 0,
                "parallelism.expert_parallel_degree ({}) must divide model.num_experts ({})",
                parallelism.expert_parallel_degree, model.num_experts);
  for (auto& line : found.take()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace athanor
