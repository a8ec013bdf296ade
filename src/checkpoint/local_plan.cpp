#include "checkpoint/local_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"

namespace athanor::inline checkpoint {
namespace {

using nlohmann::json;

// The parts of one checkpoint, newest first.
struct Key {
  int64_t step, attempt;
  int writers;
  auto operator<=>(const Key&) const = default;
};

}  // namespace

std::string LocalChoice::to_text() const {
  return json{{"step", step}, {"attempt", attempt}, {"holders", holders}}.dump();
}

LocalChoice LocalChoice::from_text(const std::string& text) {
  const json read = json::parse(text);
  return {read.at("step"), read.at("attempt"), read.at("holders")};
}

std::optional<LocalChoice> choose_local(const std::vector<std::vector<LocalPart>>& parts, int64_t above,
                                        int64_t attempt, std::vector<std::string>& notes) {
  std::map<Key, std::vector<std::vector<int>>, std::greater<>> found;  // the holders of each writer
  for (size_t node = 0; node < parts.size(); ++node) {
    for (const LocalPart& part : parts[node]) {
      if (part.step <= above || part.attempt < attempt) continue;
      auto& holders = found[{part.step, part.attempt, part.writers}];
      holders.resize(static_cast<size_t>(part.writers));
      for (const int writer : part.kept) holders.at(static_cast<size_t>(writer)).push_back(static_cast<int>(node));
    }
  }
  for (const auto& [key, holders] : found) {
    const auto missing = std::ranges::count_if(holders, &std::vector<int>::empty);
    if (missing == 0 && !holders.empty()) return LocalChoice{key.step, key.attempt, holders};
    notes.push_back(fmt::format(
        "the local checkpoint of step {} is not whole: the pieces of {} of its {} ranks are on no node, the first of "
        "them rank {}",
        key.step, missing, key.writers, std::ranges::find_if(holders, &std::vector<int>::empty) - holders.begin()));
  }
  return std::nullopt;
}

int copies_left(const LocalChoice& choice, const UselessCopies& useless, int node, const std::string& file) {
  const auto writer = static_cast<size_t>(writer_of_file(file));
  ATHANOR_CHECK_CHECKPOINT(writer < choice.holders.size(), "{}: there is no rank of this number", file);
  const auto found = useless.find({node, file});
  return static_cast<int>(std::ranges::count(choice.holders[writer], node)) -
         (found == useless.end() ? 0 : found->second);
}

std::vector<FileMove> plan_moves(const LocalChoice& choice, const std::vector<std::vector<std::string>>& needed,
                                 const UselessCopies& useless) {
  const auto nodes = static_cast<int>(needed.size());
  std::map<std::pair<int, int>, std::set<std::string>> moves;  // distance and sender → files
  for (int to = 0; to < nodes; ++to) {
    for (const std::string& file : needed[static_cast<size_t>(to)]) {
      const auto writer = static_cast<size_t>(writer_of_file(file));
      ATHANOR_CHECK_CHECKPOINT(writer < choice.holders.size(), "{}: there is no rank of this number", file);
      const auto& holders = choice.holders[writer];
      const auto from = std::ranges::find_if(
          holders, [&](int node) { return node != to && copies_left(choice, useless, node, file) > 0; });
      ATHANOR_CHECK_CHECKPOINT(from != holders.end(), "{} is in order on no other node", file);
      moves[{(to - *from + nodes) % nodes, *from}].insert(file);
    }
  }
  std::vector<FileMove> list;
  for (const auto& [place, files] : moves)
    list.push_back({place.second, (place.second + place.first) % nodes, {files.begin(), files.end()}});
  return list;
}

std::string text_of_moves(const std::vector<FileMove>& moves) {
  json list = json::array();
  for (const auto& [from, to, files] : moves) list.push_back({{"from", from}, {"to", to}, {"files", files}});
  return list.dump();
}

std::vector<FileMove> moves_of_text(const std::string& text) {
  std::vector<FileMove> moves;
  for (const json& each : json::parse(text)) moves.push_back({each.at("from"), each.at("to"), each.at("files")});
  return moves;
}

}  // namespace athanor::inline checkpoint
