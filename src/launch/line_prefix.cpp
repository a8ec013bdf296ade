#include "launch/line_prefix.h"

#include <algorithm>

#include "base/error.h"

namespace athanor::launch {
namespace {

constexpr size_t kMostPrefixes = 8;  // on a line

std::string_view without_spaces(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\v\f");
  return begin == text.npos ? text.substr(text.size()) : text.substr(begin);
}

// The second prefix of one entry on a line (a launcher within a launcher) is of another kind than the first.
uint32_t kind_of(uint32_t entry, const std::vector<Prefix>& before) {
  const auto same = [&](const Prefix& each) { return each.kind / kMostPrefixes == entry; };
  return static_cast<uint32_t>(entry * kMostPrefixes + static_cast<size_t>(std::ranges::count_if(before, same)));
}

}  // namespace

void peel(std::string_view line, const SignatureSet& signatures, PatternScratch& scratch, PeeledLine& peeled) {
  std::vector<Pattern::Group> groups;
  peeled.text = without_spaces(line);
  peeled.prefixes.clear();
  const auto take_one = [&] {
    for (const uint32_t entry : signatures.prefixes()) {
      const size_t size = signatures.at(entry).pattern.find_at_front(peeled.text, scratch, groups);
      if (size == 0) continue;
      Prefix prefix{kind_of(entry, peeled.prefixes), peeled.text.substr(0, size), {}, {}};
      for (const auto& group : groups) {
        if (group.name == "host") prefix.host = group.text;
        if (group.name == "rank") prefix.rank = group.text;
      }
      peeled.prefixes.push_back(prefix);
      peeled.text = without_spaces(peeled.text.substr(size));
      return true;
    }
    return false;
  };
  while (peeled.prefixes.size() < kMostPrefixes && take_one()) continue;
}

void PrefixCensus::count(const PeeledLine& line, uint64_t offset) {
  if (line.text.empty()) return;
  if (num_lines_ == 0) first_offset_ = offset;
  is_single_ = is_single_ && offset == first_offset_;
  for (const Prefix& prefix : line.prefixes) {
    if (prefix.host.empty() && prefix.rank.empty()) continue;
    std::string names(prefix.host);
    names.append(" ").append(prefix.rank);
    auto [known, is_new] = kinds_.try_emplace(prefix.kind);
    Kind& kind = known->second;
    if (is_new) kind.names = names;
    kind.varies = kind.varies || kind.names != names;
    ++kind.num_lines;
  }
  ++num_lines_;
}

bool PrefixCensus::varies(uint32_t kind) const {
  const auto known = kinds_.find(kind);
  return known != kinds_.end() && (known->second.varies || known->second.num_lines < num_lines_);
}

}  // namespace athanor::launch
