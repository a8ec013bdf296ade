#include "launch/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"

namespace athanor::launch {
namespace {

constexpr uint32_t kMostGroups = 32;
// A line of 16 KiB that backtracks at each byte some sixty times still fits; then the pattern does not match.
constexpr uint32_t kMostBacktracks = 1'000'000;
constexpr uint32_t kMostHeapKiB = 20'000;

PCRE2_SPTR pattern_bytes(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

PatternScratch::PatternScratch()
    : match_(pcre2_match_data_create(kMostGroups, nullptr)), context_(pcre2_match_context_create(nullptr)) {
  ATHANOR_ASSERT(match_ && context_);
  pcre2_set_match_limit(context_, kMostBacktracks);
  pcre2_set_heap_limit(context_, kMostHeapKiB);
}

PatternScratch::~PatternScratch() {
  pcre2_match_data_free(match_);
  pcre2_match_context_free(context_);
}

Pattern::Pattern(std::string_view pattern) {
  int error = 0;
  size_t at = 0;
  auto* code =
      pcre2_compile(pattern_bytes(pattern), pattern.size(), PCRE2_NEVER_UTF | PCRE2_DUPNAMES, &error, &at, nullptr);
  if (!code) {
    PCRE2_UCHAR buffer[256] = {};
    pcre2_get_error_message(error, buffer, sizeof(buffer));
    fail<ConfigError>("the pattern is not valid at byte {}: {}", at, reinterpret_cast<const char*>(buffer));
  }
  code_.reset(code, pcre2_code_free);
  jit_ = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  uint32_t count = 0, entry_bytes = 0;
  PCRE2_SPTR table = nullptr;
  pcre2_pattern_info(code, PCRE2_INFO_NAMECOUNT, &count);
  pcre2_pattern_info(code, PCRE2_INFO_NAMEENTRYSIZE, &entry_bytes);
  pcre2_pattern_info(code, PCRE2_INFO_NAMETABLE, &table);
  for (uint32_t i = 0; i < count; ++i, table += entry_bytes) {
    numbers_.push_back(static_cast<uint32_t>(table[0]) << 8 | table[1]);
    names_.emplace_back(reinterpret_cast<const char*>(table + 2));
  }
  for (const uint32_t number : numbers_)
    ATHANOR_CHECK(number < kMostGroups, "the pattern has more than {} groups", kMostGroups - 1);
}

bool Pattern::find(std::string_view line, PatternScratch& scratch, std::vector<Group>& groups) const {
  return match(line, scratch, groups) != nullptr;
}

size_t Pattern::find_at_front(std::string_view text, PatternScratch& scratch, std::vector<Group>& groups) const {
  const size_t* const ends = match(text, scratch, groups);
  return ends && ends[0] == 0 ? ends[1] : 0;
}

// Returns where the match begins and ends, or nothing.
const size_t* Pattern::match(std::string_view text, PatternScratch& scratch, std::vector<Group>& groups) const {
  groups.clear();
  const int found =
      jit_ ? pcre2_jit_match(code_.get(), pattern_bytes(text), text.size(), 0, 0, scratch.match_, scratch.context_)
           : pcre2_match(code_.get(), pattern_bytes(text), text.size(), 0, 0, scratch.match_, scratch.context_);
  if (found < 0) return nullptr;  // no match, or a limit
  const size_t* ends = pcre2_get_ovector_pointer(scratch.match_);
  for (size_t i = 0; i < numbers_.size(); ++i) {
    const size_t begin = ends[2 * numbers_[i]], end = ends[2 * numbers_[i] + 1];
    const bool is_set = static_cast<int>(numbers_[i]) < (found == 0 ? static_cast<int>(kMostGroups) : found);
    if (is_set && begin != PCRE2_UNSET && begin < end) groups.push_back({names_[i], text.substr(begin, end - begin)});
  }
  return ends;
}

}  // namespace athanor::launch
