#pragma once
// How `athanor status` asks the collectors of other nodes for stacks: through the run's folder, for where sockets do
// not reach.
//
// Who asks makes a folder RUN/board/requests/NAME with `request.json`, which has the ranks. Every collector lists
// RUN/board/requests at an interval (RequestWatch). If one of the ranks is on its node, it answers with
// NODE.answer in that folder: at once, again after each stack, and at last with all of them. Who asked removes the
// folder, so that an answer that comes later has no place and leaves nothing. docs/board.md has the formats.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "board/board.h"
#include "board/stacks.h"

namespace athanor::board {

inline constexpr int kRequestFormat = 1;
inline constexpr double kRequestLife_s = 300;  ///< an older request is not answered: its asker was killed
inline constexpr double kAnswerMargin_s = 5;   ///< that a node may take to begin, after its interval
inline constexpr double kEachStack_s = 20;     ///< that it may take for each stack after that

/// A rank, with the process and the node that the reports name. A collector answers only if all three are in its table,
/// so that it never answers for a rank of another run or attempt.
struct AskedRank {
  int rank = 0, process = 0;
  std::string node;
  bool operator==(const AskedRank&) const = default;
};

struct StackRequest {
  double time = 0;  ///< seconds since 1970
  std::vector<AskedRank> ranks;
};

struct StackAnswer {
  bool is_whole = false;  ///< false: there will be more
  std::vector<RankStack> stacks;
};

std::string to_text(const StackRequest& request);
std::string to_text(const StackAnswer& answer);
/// @throws DataError for a text that is none of this format.
StackRequest parse_request(const std::string& text);
StackAnswer parse_answer(const std::string& text);

/// The names in the folder of a request.
inline constexpr const char* kRequestFile = "request.json";
std::string answer_file(const std::string& node);

/// The side of the one who asks: a request that lives as long as this object.
class StackQuestion {
 public:
  /// Writes the request, and removes those that others left more than kRequestLife_s ago.
  /// @throws Error if that is not possible: the run is that of another user, or the disk is full.
  StackQuestion(const std::filesystem::path& run_dir, const std::vector<AskedRank>& ranks);
  ~StackQuestion();
  StackQuestion(const StackQuestion&) = delete;
  StackQuestion& operator=(const StackQuestion&) = delete;

  /// Waits until every node has sent all of its answer. A node that has not begun after `begin_s`, or has then sent
  /// nothing new for kEachStack_s, is not waited for any longer.
  /// @return by node; one that has not begun is absent.
  std::map<std::string, StackAnswer> wait(double begin_s) const;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
  std::vector<std::string> nodes_;
};

struct FoundRequest {
  std::filesystem::path folder;
  std::vector<AskedRank> ranks;  ///< those on this node
};

/// The collector's side: which requests have come.
class RequestWatch {
 public:
  RequestWatch(std::filesystem::path run_dir, std::string node)
      : run_dir_(std::move(run_dir)), node_(std::move(node)) {}

  /// Lists the requests of the run, and reads those that are new. Returns those for ranks of this node, each once. One
  /// that another user made is left alone, and so is one that is older than kRequestLife_s; if this node is the first
  /// that it names, such an old one is removed.
  /// @param now  seconds since 1970.
  std::vector<FoundRequest> look(double now);

 private:
  std::filesystem::path run_dir_;
  std::string node_;
  std::map<std::string, StackRequest> known_;  // by name: those that are there and were read
};

/// Reads the stacks and writes the answer of this node, which may take kEachStack_s for each.
/// @param memory_file  the file of `memory`.
void answer_request(const FoundRequest& request, const SharedMemory& memory, const std::filesystem::path& memory_file);

}  // namespace athanor::board
