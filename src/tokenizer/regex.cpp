#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "tokenizer/regex_dialect.h"

namespace athanor::inline tokenizer {
namespace {

constexpr size_t kJitStackBytes = 1 << 20;
// Backtracking on a pathological pattern ends in an error after about a second, and does not exhaust the memory.
constexpr uint32_t kMaxBacktracks = 10'000'000;
// A megabyte of repeated alternatives takes some 500 MB. PCRE2 up to 10.42 computes the bytes in 32 bits, and with 4
// GiB or more it refuses every match.
constexpr uint32_t kMaxHeapKiB = (4 << 20) - 1;

PCRE2_SPTR bytes_of(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

std::string message_of(int error) {
  PCRE2_UCHAR buffer[256] = {};
  pcre2_get_error_message(error, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

RegexScratch::RegexScratch()
    : match_(pcre2_match_data_create(1, nullptr)), context_(pcre2_match_context_create(nullptr)),
      stack_(pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr)) {
  ATHANOR_ASSERT(match_ && context_);
  pcre2_jit_stack_assign(context_, nullptr, stack_);
  pcre2_set_match_limit(context_, kMaxBacktracks);
  pcre2_set_heap_limit(context_, kMaxHeapKiB);
}

RegexScratch::~RegexScratch() {
  pcre2_match_data_free(match_);
  pcre2_match_context_free(context_);
  pcre2_jit_stack_free(stack_);
}

Regex::Regex(std::string_view pattern) : pattern_(pattern) {
  const std::string translated = pcre2_from_oniguruma(pattern);
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  ATHANOR_ASSERT(context);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t at = 0;
  // In Oniguruma, ^ and $ always match at lines.
  auto* code = pcre2_compile(bytes_of(translated), translated.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error,
                             &at, context.get());
  ATHANOR_CHECK_DATA(code, "the pattern {} is not valid: {}", pattern_, message_of(error));
  code_.reset(code, pcre2_code_free);
  jit_ = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
}

bool Regex::find(std::string_view text, size_t from, RegexScratch& scratch, Match& match) const {
  int found = PCRE2_ERROR_JIT_STACKLIMIT;
  if (jit_) {
    found = pcre2_jit_match(code_.get(), bytes_of(text), text.size(), from, PCRE2_NO_UTF_CHECK, scratch.match_,
                            scratch.context_);
  }
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter takes its memory from the heap
    found = pcre2_match(code_.get(), bytes_of(text), text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        scratch.match_, scratch.context_);
  }
  if (found == PCRE2_ERROR_NOMATCH) return false;
  ATHANOR_CHECK_DATA(found >= 0, "matching the pattern {} of the tokenizer from byte {} on failed: {}", pattern_, from,
                     message_of(found));
  const size_t* ends = pcre2_get_ovector_pointer(scratch.match_);
  match = {ends[0], ends[1]};
  return true;
}

std::string escape_regex(std::string_view literal) {
  std::string pattern;
  for (const char c : literal) {
    if (static_cast<unsigned char>(c) < 0x80 && !std::isalnum(static_cast<unsigned char>(c))) {
      pattern += fmt::format("\\x{{{:x}}}", static_cast<unsigned char>(c));
    } else {
      pattern += c;
    }
  }
  return pattern;
}

}  // namespace athanor::inline tokenizer
