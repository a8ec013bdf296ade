#include "layout/activations.h"

#include <algorithm>
#include <set>

#include "config/families.h"
#include "layout/layer_memory.h"
#include "layout/schedule.h"

namespace athanor::inline layout {
namespace {

// Rotary tables of a model: of the layers that follow rope_scaling, and of those that do not.
double count_rotations(const ModelConfig& m) {
  const Family& family = family_of(m);
  if (family.positions != Positions::kRotary) return 0;
  if (!m.rotates_windows_apart()) return 1;
  std::set<bool> in_window;
  for (int64_t l = 0; l < m.num_hidden_layers; ++l) in_window.insert(m.window_of(l) > 0);
  return static_cast<double>(in_window.size());
}

// Memory of a chunk's logits over a rank's vocabulary, and of the products with them.
double loss_bytes(const RunConfig& config, const Layout& layout, const LayerShape& s) {
  const double chunk = std::min(static_cast<double>(config.train.loss_chunk_tokens), s.tokens);
  const double vocab = static_cast<double>(config.model.vocab_size) / layout.tensor();
  const double hidden = s.hidden;
  double scratch = 0;
  for (const ProductShape& p :
       {ProductShape{chunk, vocab, hidden}, {chunk, hidden, vocab}, {vocab, hidden, chunk, true}})
    scratch = std::max(scratch, product_scratch(p, s.widths(), s.threads));
  // Tensor ranks of devices compute their part of the softmax in torch ops (ops/cross_entropy_parts.cpp): the logits in
  // fp32, the same less their maxima, and the exponentials.
  const double wide = s.on_device && s.tensor ? 3 * 4 * chunk * vocab : 0;
  const double logits = config.model.final_logit_softcapping > 0 ? 2 : 1;  // before and after the cap
  return logits * chunk * vocab * s.width + wide + scratch;
}

}  // namespace

StageMemory count_stage_memory(const RunConfig& config, int64_t seq_len, const Layout& layout, const StageLayers& stage,
                               Multiplier multiplier) {
  const LayerShape s = layer_shape(config, seq_len, layout, multiplier);
  const RecomputeKinds again = parse_recompute(config.parallelism.recompute);
  std::vector<LayerMemory> layers;
  for (int64_t l = stage.first; l < stage.end; ++l)
    layers.emplace_back(s.in_window(config.model.window_of(l)), again, config.model.is_sparse_layer(l));
  const bool branches = !again.layer;
  const double statistics = s.own_tokens * (s.layer_norm ? 8 : 4);

  StageMemory memory;
  MemoryPeak t;
  const double tables = count_rotations(config.model);
  double left = tables * 4 * s.tokens * s.head_dim + (tables > 0 ? 8 * s.seq_len : 0);  // cos, sin, positions
  t.take(left + s.residual());  // the embedding's output, or what was received
  if (stage.embeds && s.tensor) {
    // If the vocabulary is shared, the op that puts this rank's rows among zeros saves them and their indices.
    const double rows = (s.stream() + 16 * s.tokens) / layout.tensor();
    t.take(rows);
    left += rows;
  }
  if (stage.embeds && tables == 0) t.pulse(2 * s.residual());
  bool branch = false;
  for (LayerMemory& layer : layers) {
    layer.forward(t, branch);
    branch = branches;
  }
  if (stage.has_head) {
    if (branch) t.take(s.residual());
    t.take(s.residual() + statistics);
    if (s.shares_tokens) t.swap(s.stream(), s.residual());
    t.take(s.stream() + 4 * s.tokens);  // the gradient, which is made at once
    t.pulse(loss_bytes(config, layout, s));
    t.give(s.stream() + 4 * s.tokens);
    if (branch) t.give(s.residual());
    left += statistics;
    if (!s.tensor) left += s.stream();
  } else if (branch) {
    t.pulse(s.residual());  // the sum, which is sent
    t.give(s.residual());
  }
  memory.forward_bytes = t.peak();
  memory.kept_bytes = t.now();

  t.reset_peak();
  t.take(s.residual());  // the gradient that arrives, or that of the last norm
  if (stage.has_head) {
    if (s.shares_tokens) t.take(s.residual());
    if (s.tensor) t.give(s.stream());  // gradient of the loss: it has become the norm's
    if (!s.layer_norm) t.pulse(s.own_tokens / 64 * s.hidden * 4);
    t.give(s.residual());  // the norm's input
    if (s.shares_tokens) t.give(s.residual());
  }
  for (size_t l = layers.size(); l-- > 0;) layers[l].backward(t);
  memory.backward_bytes = t.peak();
  return memory;
}

ActivationNeed count_activations(const RunConfig& config, int64_t seq_len, const Layout& layout, int rank,
                                 Multiplier multiplier) {
  const auto& p = config.parallelism;
  const int pipeline_rank = layout.coordinate(rank, Axis::kPipeline);
  ActivationNeed need;
  for (const StageLayers& stage : stages_of(config.model, p, pipeline_rank))
    need.stages.push_back(count_stage_memory(config, seq_len, layout, stage, multiplier));
  const auto microbatches = static_cast<int>(layout.microbatches());
  const auto tokens = static_cast<double>(config.train.micro_batch_size * seq_len);
  need.batch_bytes = 16 * tokens * microbatches;
  if (layout.pipeline() > 1) {
    // Memory for two messages of each peer is allocated in advance (parallel/pipeline_mail.h), and one is being sent.
    const LayerShape s = layer_shape(config, seq_len, layout, multiplier);
    const bool inner = p.virtual_stages > 1 || (pipeline_rank > 0 && pipeline_rank + 1 < layout.pipeline());
    const int peers = layout.pipeline() > 2 && inner ? 2 : 1;
    need.mail_bytes = (std::min(2, microbatches) * peers + 1) * s.residual();
  }
  const auto schedule =
      make_schedule(p.pipeline_schedule.word(), layout.pipeline(), static_cast<int>(p.virtual_stages), microbatches);
  double kept = need.batch_bytes + need.mail_bytes;
  int in_flight = 0;
  for (const Action& action : schedule.actions[static_cast<size_t>(pipeline_rank)]) {
    const StageMemory& stage = need.stages[static_cast<size_t>(action.chunk)];
    const bool forward = action.work == Work::kForward;
    const double peak = forward ? kept + stage.forward_bytes : kept - stage.kept_bytes + stage.backward_bytes;
    in_flight += forward;
    if (peak > need.peak_bytes) {
      need.peak_bytes = peak;
      need.kept_bytes = forward ? kept + stage.kept_bytes : kept;
      need.in_flight = in_flight;
    }
    kept += forward ? stage.kept_bytes : -stage.kept_bytes;
    in_flight -= !forward;
  }
  return need;
}

}  // namespace athanor::inline layout
