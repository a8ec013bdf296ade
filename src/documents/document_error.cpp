#include "documents/document_error.h"

#include <vector>

#include "base/log.h"
#include "base/text.h"

namespace athanor::inline documents {

void SkipLog::handle(const DocumentError& error) {
  if (on_error_ == OnError::kFail) throw error;
  const std::lock_guard lock(mutex_);
  const bool first = ++counts_[std::string(error.cause())] == 1;
  // A file that is given up half-way is always reported: the number of lost documents is unknown.
  const bool rest_of_file = error.cause().find("rest of the file") != std::string_view::npos;
  if (first || rest_of_file) {
    log::warn("skipped: {}{}", error.what(), rest_of_file ? "" : " (others like it are only counted)");
  }
}

SkipCounts SkipLog::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::string describe_skips(const SkipCounts& counts) {
  std::vector<std::string> parts;
  for (const auto& [cause, count] : counts) parts.push_back(fmt::format("{} {}", count, cause));
  return parts.empty() ? "none" : join(parts);
}

}  // namespace athanor::inline documents
