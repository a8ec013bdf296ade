#pragma once
// A pattern of a signature: PCRE2's language over bytes, compiled for the processor, with limits, so that no line of a
// log can make it slow or take much memory.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

namespace athanor::launch {

/// Working memory of one thread for matching; any pattern may use it.
class PatternScratch {
 public:
  PatternScratch();
  ~PatternScratch();
  PatternScratch(const PatternScratch&) = delete;
  PatternScratch& operator=(const PatternScratch&) = delete;

 private:
  friend class Pattern;
  pcre2_real_match_data_8* match_ = nullptr;
  pcre2_real_match_context_8* context_ = nullptr;
};

class Pattern {
 public:
  /// What a named group has matched.
  struct Group {
    std::string_view name, text;
  };

  /// @throws ConfigError with the reason and the byte if the pattern is not valid.
  explicit Pattern(std::string_view pattern);

  /// Returns whether `line` has a match, and its groups. A line on which the pattern exceeds its limits has none.
  bool find(std::string_view line, PatternScratch& scratch, std::vector<Group>& groups) const;

  /// Returns the size of a match at the front of `text`, and its groups; 0 if there is none.
  size_t find_at_front(std::string_view text, PatternScratch& scratch, std::vector<Group>& groups) const;

  const std::vector<std::string>& group_names() const { return names_; }

 private:
  const size_t* match(std::string_view text, PatternScratch& scratch, std::vector<Group>& groups) const;

  std::shared_ptr<pcre2_real_code_8> code_;
  bool jit_ = false;
  std::vector<std::string> names_;
  std::vector<uint32_t> numbers_;  // the named groups'
};

}  // namespace athanor::launch
