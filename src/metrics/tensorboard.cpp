#include "metrics/tensorboard.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>

#include "base/error.h"
#include "base/file_moves.h"
#include "base/process.h"
#include "base/wall_clock.h"
#include "config/dump.h"
#include "metrics/event_format.h"
#include "metrics/tensorboard_values.h"

namespace athanor::inline metrics {
namespace fs = std::filesystem;
namespace {

// Field numbers of tensorflow's event.proto and summary.proto.
namespace event {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace summary {
constexpr int kValue = 1, kTag = 1, kSimpleValue = 2;
}
namespace session_log {
constexpr int kStatus = 1;
constexpr uint64_t kStart = 1;
}  // namespace session_log

protobuf::Message begin_event(int64_t step) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  protobuf::Message message;
  message.float64(event::kWallTime, std::chrono::duration<double>(now).count());
  message.integer(event::kStep, static_cast<uint64_t>(step));
  return message;
}

constexpr std::string_view kPrefix = "events.out.tfevents.";

// Returns a name that sorts after every file there, even one begun in the same second.
fs::path next_file(const fs::path& folder) {
  int64_t time_s = std::time(nullptr);
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    const auto used = static_cast<int64_t>(std::strtoll(name.c_str() + kPrefix.size(), nullptr, 10));
    if (used >= time_s && used < 9'999'999'999) time_s = used + 1;
  }
  return folder / fmt::format("{}{:010}.{}.{}", kPrefix, time_s, host_name(), ::getpid());
}

fs::path made_folder(const fs::path& folder) {
  create_folders(folder);
  return folder;
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const fs::path& folder, int64_t first_step)
    : path_(next_file(made_folder(folder))), file_(path_) {
  const protobuf::Message version = begin_event(0).bytes(event::kFileVersion, "brain.Event:2");
  const protobuf::Message status = protobuf::Message().integer(session_log::kStatus, session_log::kStart);
  const protobuf::Message start = begin_event(first_step).bytes(event::kSessionLog, status.wire());
  try {
    file_.append(frame_record(version.wire()) + frame_record(start.wire()));
  } catch (const IoError&) {
    fs::remove(path_);  // readers would fail on an empty one
    throw;
  }
}

void TensorBoardWriter::scalar(std::string_view tag, double value, int64_t step) {
  scalars({{std::string(tag), value}}, step);
}

void TensorBoardWriter::scalars(const std::vector<std::pair<std::string, double>>& tagged, int64_t step) {
  protobuf::Message values;
  for (const auto& [tag, value] : tagged) {
    protobuf::Message one;
    one.bytes(summary::kTag, tag).float32(summary::kSimpleValue, static_cast<float>(value));
    values.bytes(summary::kValue, one.wire());
  }
  file_.append(frame_record(begin_event(step).bytes(event::kSummary, values.wire()).wire()));
}

void TensorBoardWriter::histograms(const std::vector<std::pair<std::string, const Histogram*>>& tagged, int64_t step) {
  protobuf::Message values;
  for (const auto& [tag, histogram] : tagged) values.bytes(summary::kValue, histogram_value(tag, *histogram));
  file_.append(frame_record(begin_event(step).bytes(event::kSummary, values.wire()).wire()));
}

void TensorBoardWriter::hyperparameters(const std::vector<Hyperparameter>& hyperparameters) {
  protobuf::Message values;
  values.bytes(summary::kValue, hyperparameters_value(hyperparameters, unix_time_s()));
  file_.append(frame_record(begin_event(0).bytes(event::kSummary, values.wire()).wire()));
}

namespace {

using Tagged = std::vector<std::pair<std::string, double>>;

Tagged tagged_scores(const EvaluationScores& scores) {
  Tagged tagged;
  for (const auto& [task, metrics] : scores) {
    for (const auto& [metric, score] : metrics) tagged.emplace_back("eval/" + task + "/" + metric, score.value);
  }
  return tagged;
}

void add_ranks(const StepMetrics& m, Tagged& tagged) {
  if (m.rank_norms) {
    const auto& norms = *m.rank_norms;
    tagged.emplace_back("ranks/grad_norm_imbalance", RankNorms::imbalance(norms.ranks));
    if (!norms.experts.empty())
      tagged.emplace_back("ranks/expert_grad_norm_imbalance", RankNorms::imbalance(norms.experts));
  }
  if (m.tokens_per_dest_rank) {
    tagged.emplace_back("ranks/tokens_per_dest_rank_max", m.tokens_per_dest_rank->max);
    tagged.emplace_back("ranks/tokens_per_dest_rank_mean", m.tokens_per_dest_rank->mean);
    tagged.emplace_back("ranks/tokens_per_dest_rank_min", m.tokens_per_dest_rank->min);
  }
  for (const auto& [name, group] : m.traffic) {
    tagged.emplace_back("communication/" + name + "_mb_inside", static_cast<double>(group.bytes_inside) / 1e6);
    tagged.emplace_back("communication/" + name + "_mb_outside", static_cast<double>(group.bytes_outside) / 1e6);
    tagged.emplace_back("communication/" + name + "_waited_s", group.waited_s);
  }
}

std::string of_row(const char* name, size_t row, size_t num_rows) {
  if (row == 0) return fmt::format("layers/{}_embedding", name);
  if (row + 1 == num_rows) return fmt::format("layers/{}_output", name);
  return fmt::format("layers/{}_layer_{:02}", name, row - 1);
}

void add_layers(const LayerMetrics& layers, Tagged& tagged) {
  const size_t rows = layers.grad_norm.size();
  for (size_t row = 0; row < rows; ++row) {
    tagged.emplace_back(of_row("grad_norm", row, rows), layers.grad_norm[row]);
    tagged.emplace_back(of_row("weight_norm", row, rows), layers.weight_norm[row]);
    tagged.emplace_back(of_row("update_norm", row, rows), layers.update_norm[row]);
  }
  for (size_t layer = 0; layer < layers.activation_rms.size(); ++layer) {
    tagged.emplace_back(of_row("activation_rms", layer + 1, rows), layers.activation_rms[layer]);
    tagged.emplace_back(of_row("attention_logit_max", layer + 1, rows), layers.attention_logit_max[layer]);
  }
}

void write_histograms(TensorBoardWriter& writer, const LayerMetrics& layers, int64_t step) {
  if (layers.weights.empty()) return;
  std::vector<std::pair<std::string, const Histogram*>> tagged;
  const size_t rows = layers.weights.size();
  for (size_t row = 0; row < rows; ++row) {
    tagged.emplace_back(of_row("weights", row, rows), &layers.weights[row]);
    tagged.emplace_back(of_row("gradients", row, rows), &layers.gradients[row]);
  }
  writer.histograms(tagged, step);
}

}  // namespace

std::vector<Hyperparameter> hyperparameters_of(const RunConfig& config) {
  std::vector<Hyperparameter> shown;
  for (const auto& [name, value] : run_config_values(config)) {
    const auto in = [&of = name](std::string_view table) { return of.starts_with(table); };
    const bool is_path = name == "train.run_dir" || name == "data.path" || name == "model.from";
    if (!is_path &&
        (in("model.") || in("data.") || in("train.") || in("optimizer.") || in("moe.") || in("parallelism.")))
      shown.emplace_back(name, value);
  }
  return shown;
}

void write_scores(TensorBoardWriter& writer, const EvaluationScores& scores, int64_t step) {
  writer.scalars(tagged_scores(scores), step);
}

void write_step(TensorBoardWriter& writer, const StepMetrics& m) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  Tagged tagged = {
      {"loss/train", m.loss},
      {"optimizer/grad_norm", m.grad_norm},
      {"optimizer/lr", m.lr},
      {"optimizer/changed_share", m.changed_share},
      {"throughput/tokens_per_second", m.tokens_per_second()},
      {"throughput/tflops", m.flops_per_second() / 1e12},
      {"throughput/executed_tflops", m.executed_flops_per_second() / 1e12},
      {"throughput/mfu_percent", 100 * m.mfu()},
      {"throughput/tokens_seen", static_cast<double>(m.tokens_seen)},
      {"time/step_s", m.step_s},
      {"time/data_s", m.data_s},
      {"time/forward_s", m.forward_s},
      {"time/backward_s", m.backward_s},
      {"time/optimizer_s", m.optimizer_s},
      {"time/forward_compute_s", m.forward_compute_s()},
      {"time/forward_comm_s", m.forward_comm_s},
      {"time/backward_compute_s", m.backward_compute_s()},
      {"time/backward_comm_s", m.backward_comm_s},
      {"memory/now_gib", static_cast<double>(m.memory_bytes) / kGiB},
      {"memory/peak_gib", static_cast<double>(m.peak_memory_bytes) / kGiB},
  };
  if (m.clipped_share) tagged.emplace_back("optimizer/clipped_share", *m.clipped_share);
  if (m.largest_logit) {
    tagged.emplace_back("optimizer/attention_logit_max", m.largest_logit->value);
    tagged.emplace_back("optimizer/clipped_heads", static_cast<double>(m.largest_logit->clipped_heads));
  }
  if (m.noise && std::isfinite(m.noise_scale)) tagged.emplace_back("optimizer/noise_scale", m.noise_scale);
  if (m.updates) {
    const auto add_largest = [&](const char* tag, const std::vector<LargestOf>& largest) {
      tagged.emplace_back(tag, largest.empty() ? 0.0 : largest.front().value);
    };
    add_largest("optimizer/lost_updates", m.updates->lost);
    add_largest("optimizer/still_weights", m.updates->still);
    add_largest("optimizer/underflown_moments", m.updates->underflow);
    add_largest("optimizer/not_finite_state", m.updates->not_finite);
    add_largest("optimizer/orthogonality", m.updates->orthogonality);
  }
  if (m.device_memory) {
    tagged.emplace_back("memory/device_now_gib", static_cast<double>(m.device_memory->in_use_bytes) / kGiB);
    tagged.emplace_back("memory/device_peak_gib", static_cast<double>(m.device_memory->peak_in_use_bytes) / kGiB);
    tagged.emplace_back("memory/device_held_gib", static_cast<double>(m.device_memory->held_bytes) / kGiB);
  }
  add_ranks(m, tagged);
  if (m.validation_loss) tagged.emplace_back("loss/validation", *m.validation_loss);
  for (const auto& [source, loss] : m.validation_losses) tagged.emplace_back("loss/validation/" + source, loss);
  for (const auto& each : tagged_scores(m.evaluation)) tagged.push_back(each);
  for (const auto& [source, tokens] : m.tokens_drawn)
    tagged.emplace_back("data/tokens_drawn/" + source, static_cast<double>(tokens));
  if (!m.routers.empty()) {  // a dense model has no router
    tagged.emplace_back("loss/aux", m.aux_loss);
    tagged.emplace_back("loss/router_z", m.z_loss);
    tagged.emplace_back("router/entropy", m.router_entropy);
    double worst = 0;
    for (const auto& router : m.routers) worst = std::max(worst, router.load_max_over_mean);
    tagged.emplace_back("router/load_max_over_mean", worst);
    for (size_t layer = 0; layer < m.routers.size(); ++layer) {
      const auto& router = m.routers[layer];
      const auto add = [&](const char* name, double value) {
        tagged.emplace_back(fmt::format("router/{}_layer_{:02}", name, layer), value);
      };
      add("load_max_over_mean", router.load_max_over_mean);
      add("load_p95_over_mean", router.load_p95_over_mean);
      add("dead_experts", static_cast<double>(router.dead_experts));
      add("reassigned_share", router.reassigned_share);
      add("dropped_share", router.dropped_share);
      add("entropy", router.entropy);
    }
  }
  if (m.layers) add_layers(*m.layers, tagged);
  writer.scalars(tagged, m.step);
  if (m.layers) write_histograms(writer, *m.layers, m.step);
}

}  // namespace athanor::inline metrics
