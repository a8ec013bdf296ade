#pragma once
// What a transfer did, merged from all nodes on the way to the first: sums, the slowest nodes by name, and a histogram
// of the nodes' times. It has the same size on every rank, unless each node's line is asked for.

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace athanor::staging {

/// One node's line.
struct NodeLine {
  int node = 0;
  std::string host;
  double seconds = 0;  ///< from the moment at which all nodes knew what is sent, to its last file
  uint64_t bytes = 0;  ///< that it lacked and has written
  int exit_code = 0;   ///< one of base/exit_codes.h; 0: it has everything
  std::string failure = {};

  double mb_per_s() const { return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e6 : 0; }
};

class Report {
 public:
  static constexpr size_t kMostLines = 5;  ///< for the slowest nodes, and for those that failed

  Report() = default;
  /// @param keeps_all  keeps the line of each node.
  Report(const NodeLine& line, bool keeps_all);
  void merge(const Report& other);

  std::string encode() const;
  static Report decode(const std::string& text);

  int num_nodes() const { return num_nodes_; }
  int num_failed() const { return num_failed_; }
  const std::vector<NodeLine>& slowest() const { return slowest_; }  ///< the slowest first
  const std::vector<NodeLine>& failed() const { return failed_; }    ///< by node
  uint64_t bytes_written() const { return bytes_written_; }          ///< by all nodes
  double median_s() const;                                           ///< within 5%
  double slowest_s() const { return slowest_.empty() ? 0 : slowest_[0].seconds; }
  /// Returns "node7: cannot write …", and how many other nodes failed. There must be one.
  std::string failure_text() const;
  /// @param bytes  that are at the target of each node.
  nlohmann::json to_json(uint64_t bytes, uint64_t sent_bytes, uint64_t num_files) const;

 private:
  void add_line(const NodeLine& line);
  static size_t bucket_of(double seconds);

  static constexpr size_t kBuckets = 256;
  int num_nodes_ = 0, num_failed_ = 0;
  uint64_t bytes_written_ = 0;
  std::vector<NodeLine> slowest_, failed_, all_;
  bool keeps_all_ = false;
  std::array<int, kBuckets> histogram_{};
};

}  // namespace athanor::staging
