#include "train/tensorboard.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <ctime>

#include "base/error.h"
#include "base/process.h"
#include "train/tfrecord.h"

namespace athanor {
namespace fs = std::filesystem;
namespace {

// A protobuf message in the wire format: (field number << 3 | wire type), then the value.
class Message {
 public:
  Message& integer(int field, uint64_t value) {
    key(field, 0);
    varint(value);
    return *this;
  }
  Message& float64(int field, double value) { return fixed(field, 1, std::bit_cast<uint64_t>(value), 8); }
  Message& float32(int field, float value) { return fixed(field, 5, std::bit_cast<uint32_t>(value), 4); }
  Message& bytes(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    wire_ += value;
    return *this;
  }
  const std::string& wire() const { return wire_; }

 private:
  void key(int field, int wire_type) { varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type)); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) wire_ += static_cast<char>((value & 0x7F) | 0x80);
    wire_ += static_cast<char>(value);
  }
  Message& fixed(int field, int wire_type, uint64_t bits, int num_bytes) {
    key(field, wire_type);
    for (int i = 0; i < num_bytes; ++i) wire_ += static_cast<char>(bits >> (8 * i) & 0xFF);
    return *this;
  }

  std::string wire_;
};

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

Message begin_event(int64_t step) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  Message message;
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
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw IoError("cannot create folder " + folder.string() + ": " + error.message(), error.value());
  return folder;
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const fs::path& folder, int64_t first_step)
    : path_(next_file(made_folder(folder))), file_(path_) {
  const Message version = begin_event(0).bytes(event::kFileVersion, "brain.Event:2");
  const Message status = Message().integer(session_log::kStatus, session_log::kStart);
  const Message start = begin_event(first_step).bytes(event::kSessionLog, status.wire());
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
  Message values;
  for (const auto& [tag, value] : tagged) {
    Message one;
    one.bytes(summary::kTag, tag).float32(summary::kSimpleValue, static_cast<float>(value));
    values.bytes(summary::kValue, one.wire());
  }
  file_.append(frame_record(begin_event(step).bytes(event::kSummary, values.wire()).wire()));
}

namespace {

using Tagged = std::vector<std::pair<std::string, double>>;

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

}  // namespace

void write_step(TensorBoardWriter& writer, const StepMetrics& m) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  Tagged tagged = {
      {"loss/train", m.loss},
      {"optimizer/grad_norm", m.grad_norm},
      {"optimizer/lr", m.lr},
      {"optimizer/changed_share", m.changed_share},
      {"throughput/tokens_per_second", m.tokens_per_second()},
      {"throughput/tflops", m.flops_per_second() / 1e12},
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
  add_ranks(m, tagged);
  if (m.validation_loss) tagged.emplace_back("loss/validation", *m.validation_loss);
  for (const auto& [source, loss] : m.validation_losses) tagged.emplace_back("loss/validation/" + source, loss);
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
  writer.scalars(tagged, m.step);
}

}  // namespace athanor
