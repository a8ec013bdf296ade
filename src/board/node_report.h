#pragma once
// What a collector tells of its node: the records as text, a JSON document of one line (docs/board.md).

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace athanor::board {

inline constexpr int kReportFormat = 1;

/// A call that a rank waits for.
struct WaitReport {
  uint64_t group = 0;  ///< identity of its group; 0 if the group has gone meanwhile
  std::string name;    ///< the name of the group: "data"
  int64_t number = 0;  ///< number of the call in its group, from 0
  std::string call;    ///< "all_reduce"
  int peer = -1;       ///< the other rank of a message; −1 for a collective
};

struct GroupReport {
  uint64_t group = 0;
  std::string name;
  int size = 0;
  int64_t started = 0;  ///< number of collectives that the rank has started
};

struct RankReport {
  int rank = 0, process = 0;
  std::string state;  ///< running, stopped (by a signal or a debugger), gone (it did not end in order), ended
  int64_t attempt = 0, step = 0;
  std::string phase;
  int microbatch = -1;
  double phase_s = 0, change_s = 0;  ///< seconds since the phase began, and since the last change of the record
  std::optional<double> gone_s;      ///< seconds since the collector found it gone
  bool torn = false;                 ///< the process was stopped while it wrote: values may be of two moments
  std::optional<WaitReport> waits;
  std::vector<GroupReport> groups;

  bool is_there() const { return state == "running" || state == "stopped"; }
};

struct NodeReport {
  std::string node;
  int job_ranks = 0;
  double written = 0;     ///< seconds since 1970, by the node's clock
  double interval_s = 0;  ///< seconds between two files
  std::vector<RankReport> ranks;
  bool from_file = false;  ///< not in the text: a file and not a collector told it
};

/// Rounds to milliseconds, which are enough and keep texts short.
double rounded(double seconds);

nlohmann::ordered_json to_json(const NodeReport& report);
/// @param file  its name in messages. @throws DataError for a text that is no report of this format.
NodeReport parse_node_report(const std::string& text, const std::string& file);

}  // namespace athanor::board
