#include "train/captured_stage.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "ops/device_traits.h"
#include "ops/transfer.h"
#include "train/microbatch.h"

namespace athanor::inline train {
namespace {

// Libraries and allocators prepare themselves in the first calls, and the angles of positions are sent.
constexpr int64_t kPlainFirst = 2;
// A phase of training has one shape, or a few if the number of documents changes the room of their tables. Each graph
// holds the activations of a microbatch.
constexpr int64_t kMostGraphs = 4;
// A shape that none of this many microbatches had is rare, or that of an earlier phase.
constexpr int64_t kForgottenAfter = 256;
// The number under which the stage runs the microbatch that is recorded.
constexpr int kRecorded = -1;

}  // namespace

CapturedStage::CapturedStage(Stage& stage, at::Device device, const Observers* observers)
    : stage_(stage), device_(device), observers_(observers) {
  in = stage.in;
  out = stage.out;
}

void CapturedStage::expect(int64_t batch, int64_t seq_len) {
  stage_.expect(batch, seq_len);
  in = stage_.in;
  out = stage_.out;
}

CapturedStage::Captured& CapturedStage::captured_for(const Key& key) {
  std::erase_if(captured_, [&](const auto& each) { return each.second.last_seen < num_forwards_ - kForgottenAfter; });
  Captured& captured = captured_[key];
  captured.last_seen = num_forwards_;
  ++captured.num_seen;
  return captured;
}

// Returns whether a microbatch of this shape may be recorded now.
bool CapturedStage::may_capture(const Key& key) {
  if (captured_.at(key).num_seen <= kPlainFirst) return false;
  const auto has_graph = [](const auto& each) { return each.second.graph.has_value(); };
  if (std::ranges::count_if(captured_, has_graph) < kMostGraphs) return true;
  if (!std::exchange(told_of_shapes_, true))
    log::warn(
        "train.cuda_graphs: the last {} microbatches had {} shapes, and graphs are recorded for {} of them; the others "
        "launch their kernels one by one. {}",
        std::min(num_forwards_, kForgottenAfter), captured_.size(), kMostGraphs,
        "The number of documents changes the shape: a larger train.micro_batch_size evens it out");
  return false;
}

namespace {

std::vector<Tensor*> tensors_of(LossParts& parts) {
  std::vector<Tensor*> all = parts.routers.tensors();
  all.insert(all.begin(), &parts.sums);
  return all;
}

}  // namespace

bool CapturedStage::capture(Captured& captured, Tensor x, const Labels& labels) {
  Labels fixed = labels;
  captured.input = at::empty_like(labels.packed);
  view_packed(captured.input, x, fixed);
  try {
    captured.graph.emplace(device_, [&] {
      stage_.forward(kRecorded, x, &fixed);
      stage_.backward(kRecorded, {}, nullptr);  // one rank: no sums
      captured.parts = stage_.take_parts(kRecorded);
      captured.numbers = ops::pack_numbers(tensors_of(captured.parts));
    });
    log::info("train.cuda_graphs: microbatches of {} x {} tokens are launched as a graph, which holds {} of memory",
              labels.targets.size(0), labels.targets.size(1),
              format_bytes(static_cast<double>(captured.graph->held_bytes())));
    return true;
  } catch (const std::exception& error) {
    log::warn("train.cuda_graphs: the step cannot be recorded, and its kernels are launched one by one: {}",
              first_line(error.what()));
  }
  stage_.drop(kRecorded);
  failed_ = true;
  captured_.clear();
  return false;
}

// The next launch overwrites the graph's own numbers.
LossParts CapturedStage::parts_of(const Captured& captured) const {
  LossParts parts = captured.parts;
  ops::unpack_numbers(captured.numbers.clone(), tensors_of(parts));
  return parts;
}

Tensor CapturedStage::forward(int microbatch, Tensor x, const Labels* labels) {
  ++num_forwards_;
  const bool observed = observers_ && !observers_->empty();
  if (observed && !failed_ && !std::exchange(told_of_observers_, true))
    log::info("train.cuda_graphs: steps that are observed (metrics.layer_statistics) run without graphs");
  if (failed_ || observed || labels->draw.draws || !labels->packed.defined())
    return stage_.forward(microbatch, std::move(x), labels);
  const Key key{x.size(0),          x.size(1),         labels->packed.numel(), labels->num_targets,
                labels->loss_scale, labels->aux_scale, labels->z_scale};
  Captured& captured = captured_for(key);
  if (!captured.graph && !(may_capture(key) && capture(captured, x, *labels)))
    return stage_.forward(microbatch, std::move(x), labels);
  captured.input.copy_(labels->packed);
  captured.graph->launch();
  launched_[microbatch] = parts_of(captured);
  return {};
}

Tensor CapturedStage::backward(int microbatch, Tensor dy, GradientReducer* sums) {
  return launched_.contains(microbatch) ? Tensor() : stage_.backward(microbatch, std::move(dy), sums);
}

LossParts CapturedStage::take_parts(int microbatch) {
  auto node = launched_.extract(microbatch);
  return node.empty() ? stage_.take_parts(microbatch) : node.mapped();
}

std::unique_ptr<Stage> capture_if_wanted(const RunConfig& config, Stage& stage, at::Device device, int num_ranks,
                                         const Observers* observers) {
  if (!config.train.cuda_graphs) return nullptr;
  const auto without = [](const std::string& reason) -> std::unique_ptr<Stage> {
    log::warn("train.cuda_graphs has no effect: {}", reason);
    return nullptr;
  };
  if (!ops::Graph::exists_on(device))
    return without(fmt::format("there are no graphs on {}", ops::traits_of(device).place));
  if (num_ranks > 1) return without("graphs are recorded for one rank so far");
  if (config.moe.router_noise != 0)
    return without(fmt::format("moe.router_noise is {}, and noise differs in each step", config.moe.router_noise));
  return std::make_unique<CapturedStage>(stage, device, observers);
}

}  // namespace athanor::inline train
