#include "record/run_folder.h"

#include <fmt/core.h>

namespace athanor::inline record {

std::filesystem::path RunFolder::rank_log(int rank, const std::string& host) const {
  return log() / host / fmt::format("rank-{:05}.log", rank);
}

}  // namespace athanor::inline record
