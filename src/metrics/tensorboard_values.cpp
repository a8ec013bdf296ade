#include "metrics/tensorboard_values.h"

#include <algorithm>
#include <cstdlib>

#include "metrics/event_format.h"

namespace athanor::inline metrics {
namespace {

using protobuf::Message;

// Field numbers of tensorboard's summary.proto, tensor.proto and plugins/hparams/plugin_data.proto, and of protobuf's
// struct.proto.
namespace summary_value {
constexpr int kTag = 1, kHistogram = 5, kTensor = 8, kMetadata = 9;
}
namespace histogram_proto {
constexpr int kMin = 1, kMax = 2, kNum = 3, kSum = 4, kSumSquares = 5, kBucketLimit = 6, kBucket = 7;
}
namespace tensor_proto {
constexpr int kType = 1, kShape = 2, kFloats = 5, kDim = 2, kDimSize = 1;
constexpr uint64_t kFloat = 1;
}  // namespace tensor_proto
namespace plugin {
constexpr int kPluginData = 1, kName = 1, kContent = 2;
}
namespace hparams {
constexpr int kVersion = 1, kSessionStart = 3, kHparams = 1, kStartTime = 5, kKey = 1, kValue = 2;
constexpr uint64_t kNewestVersion = 0;  // PLUGIN_DATA_VERSION
}  // namespace hparams
namespace struct_value {
constexpr int kNumber = 2, kText = 3, kTruth = 4;
}

Message value_of(const std::string& toml) {
  if (toml == "true" || toml == "false") return Message().integer(struct_value::kTruth, toml == "true");
  char* end = nullptr;
  const double number = std::strtod(toml.c_str(), &end);
  if (!toml.empty() && *end == '\0') return Message().float64(struct_value::kNumber, number);
  const bool quoted = toml.size() >= 2 && toml.front() == '"' && toml.back() == '"';
  return Message().bytes(struct_value::kText, quoted ? toml.substr(1, toml.size() - 2) : toml);
}

// Values that have a plugin must have a tensor, whatever is in it.
std::string one_zero() {
  const Message dim = Message().integer(tensor_proto::kDimSize, 1),
                shape = Message().bytes(tensor_proto::kDim, dim.wire());
  return Message()
      .integer(tensor_proto::kType, tensor_proto::kFloat)
      .bytes(tensor_proto::kShape, shape.wire())
      .bytes(tensor_proto::kFloats, std::string(sizeof(float), '\0'))
      .wire();
}

}  // namespace

std::string histogram_value(const std::string& tag, const Histogram& histogram) {
  const auto& counts = histogram.counts;
  const auto used = [](double count) { return count > 0; };
  const auto first = std::ranges::find_if(counts, used) - counts.begin();
  const auto last = std::find_if(counts.rbegin(), counts.rend(), used).base() - counts.begin();  // after the last
  Message message;
  double num = 0;
  std::string limits, buckets;
  const auto append = [](std::string& packed, double value) {
    const auto bits = std::bit_cast<uint64_t>(value);
    for (int i = 0; i < 8; ++i) packed += static_cast<char>(bits >> (8 * i) & 0xFF);
  };
  for (auto bin = first; bin < last; ++bin) {
    num += counts[static_cast<size_t>(bin)];
    append(limits, Histogram::upper_edge(static_cast<int>(bin)));
    append(buckets, counts[static_cast<size_t>(bin)]);
  }
  if (num > 0) {
    const auto below = static_cast<int>(first) - 1;
    message.float64(histogram_proto::kMin, below < 0 ? 2 * Histogram::upper_edge(0) : Histogram::upper_edge(below));
    message.float64(histogram_proto::kMax, Histogram::upper_edge(static_cast<int>(last) - 1));
  }
  message.float64(histogram_proto::kNum, num)
      .float64(histogram_proto::kSum, histogram.sum)
      .float64(histogram_proto::kSumSquares, histogram.sum_of_squares)
      .bytes(histogram_proto::kBucketLimit, limits)
      .bytes(histogram_proto::kBucket, buckets);
  return Message().bytes(summary_value::kTag, tag).bytes(summary_value::kHistogram, message.wire()).wire();
}

std::string hyperparameters_value(const std::vector<std::pair<std::string, std::string>>& toml, double start_time_s) {
  Message session;
  for (const auto& [name, value] : toml) {
    const Message entry = Message().bytes(hparams::kKey, name).bytes(hparams::kValue, value_of(value).wire());
    session.bytes(hparams::kHparams, entry.wire());
  }
  session.float64(hparams::kStartTime, start_time_s);
  const Message content =
      Message().integer(hparams::kVersion, hparams::kNewestVersion).bytes(hparams::kSessionStart, session.wire());
  const Message plugin_data = Message().bytes(plugin::kName, "hparams").bytes(plugin::kContent, content.wire());
  const Message metadata = Message().bytes(plugin::kPluginData, plugin_data.wire());
  return Message()
      .bytes(summary_value::kTag, "_hparams_/session_start_info")
      .bytes(summary_value::kTensor, one_zero())
      .bytes(summary_value::kMetadata, metadata.wire())
      .wire();
}

}  // namespace athanor::inline metrics
