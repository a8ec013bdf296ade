#include "staging/report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace athanor::staging {
namespace {

using nlohmann::json;

constexpr double kFirst_s = 1e-4, kStep = 1.1;  // bucket i has the times around kFirst_s · kStep^i: up to 3,600,000 s

json json_of(const NodeLine& line) {
  json object{{"node", line.node},
              {"host", line.host},
              {"seconds", line.seconds},
              {"bytes", line.bytes},
              {"mb_per_s", line.mb_per_s()}};
  if (line.exit_code != 0) object.update({{"exit_code", line.exit_code}, {"failure", line.failure}});
  return object;
}

NodeLine line_of(const json& object) {
  return {object.at("node"),
          object.at("host"),
          object.at("seconds"),
          object.at("bytes"),
          object.value("exit_code", 0),
          object.value("failure", "")};
}

json json_of(const std::vector<NodeLine>& lines) {
  json list = json::array();
  for (const NodeLine& line : lines) list.push_back(json_of(line));
  return list;
}

std::vector<NodeLine> lines_of(const json& list) {
  std::vector<NodeLine> lines;
  for (const json& object : list) lines.push_back(line_of(object));
  return lines;
}

bool is_slower(const NodeLine& a, const NodeLine& b) {
  return a.seconds != b.seconds ? a.seconds > b.seconds : a.node < b.node;
}
bool is_before(const NodeLine& a, const NodeLine& b) { return a.node < b.node; }

void keep_first(std::vector<NodeLine>& lines, bool (*order)(const NodeLine&, const NodeLine&)) {
  std::sort(lines.begin(), lines.end(), order);
  if (lines.size() > Report::kMostLines) lines.resize(Report::kMostLines);
}

}  // namespace

Report::Report(const NodeLine& line, bool keeps_all) : keeps_all_(keeps_all) { add_line(line); }

size_t Report::bucket_of(double seconds) {
  const double at = std::log(std::max(seconds, kFirst_s) / kFirst_s) / std::log(kStep);
  return std::min(static_cast<size_t>(std::lround(at)), kBuckets - 1);
}

void Report::add_line(const NodeLine& line) {
  num_nodes_ = 1;
  bytes_written_ = line.bytes;
  slowest_ = {line};
  if (line.exit_code != 0) failed_ = {line};
  num_failed_ = static_cast<int>(failed_.size());
  if (keeps_all_) all_ = {line};
  ++histogram_[bucket_of(line.seconds)];
}

void Report::merge(const Report& other) {
  num_nodes_ += other.num_nodes_;
  num_failed_ += other.num_failed_;
  bytes_written_ += other.bytes_written_;
  slowest_.insert(slowest_.end(), other.slowest_.begin(), other.slowest_.end());
  failed_.insert(failed_.end(), other.failed_.begin(), other.failed_.end());
  all_.insert(all_.end(), other.all_.begin(), other.all_.end());
  keep_first(slowest_, is_slower);
  keep_first(failed_, is_before);
  for (size_t i = 0; i < kBuckets; ++i) histogram_[i] += other.histogram_[i];
}

std::string Report::encode() const {
  json buckets = json::array();
  for (size_t i = 0; i < kBuckets; ++i)
    if (histogram_[i] > 0) buckets.push_back({i, histogram_[i]});
  const json object{{"nodes", num_nodes_},
                    {"failures", num_failed_},
                    {"bytes", bytes_written_},
                    {"slowest", json_of(slowest_)},
                    {"failed", json_of(failed_)},
                    {"all", json_of(all_)},
                    {"histogram", std::move(buckets)}};
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

Report Report::decode(const std::string& text) {
  const json object = json::parse(text);
  Report report;
  report.num_nodes_ = object.at("nodes");
  report.num_failed_ = object.at("failures");
  report.bytes_written_ = object.at("bytes");
  report.slowest_ = lines_of(object.at("slowest"));
  report.failed_ = lines_of(object.at("failed"));
  report.all_ = lines_of(object.at("all"));
  for (const json& bucket : object.at("histogram")) report.histogram_[bucket.at(0)] = bucket.at(1);
  return report;
}

double Report::median_s() const {
  int before = 0;
  for (size_t i = 0; i < kBuckets; ++i)
    if ((before += histogram_[i]) * 2 >= num_nodes_) return kFirst_s * std::pow(kStep, static_cast<double>(i));
  return 0;
}

std::string Report::failure_text() const {
  const NodeLine& first = failed_.at(0);
  const std::string text = num_nodes_ == 1 ? first.failure : fmt::format("{}: {}", first.host, first.failure);
  if (num_failed_ == 1) return text;
  std::string others;
  for (size_t i = 1; i < failed_.size(); ++i) others += (others.empty() ? "" : ", ") + failed_[i].host;
  return fmt::format("{} ({} of {} nodes failed; also {}{})", text, num_failed_, num_nodes_, others,
                     num_failed_ > static_cast<int>(failed_.size()) ? ", …" : "");
}

json Report::to_json(uint64_t bytes, uint64_t sent_bytes, uint64_t num_files) const {
  json object{{"format", 1},
              {"bytes", bytes},
              {"sent_bytes", sent_bytes},
              {"files", num_files},
              {"nodes", num_nodes_},
              {"seconds", slowest_s()},
              {"median_seconds", median_s()},
              {"slowest", json_of(slowest_)},
              {"failed", json_of(failed_)},
              {"num_failed", num_failed_}};
  std::vector<NodeLine> by_node = all_;
  std::sort(by_node.begin(), by_node.end(), is_before);
  object["by_node"] = json_of(by_node);
  return object;
}

}  // namespace athanor::staging
