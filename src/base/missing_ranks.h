#pragma once
// The error of a collective that knows for whom it waited in vain.

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace athanor {

/// A rank of the job with the name of its host; "" if that is not known.
struct RankOnHost {
  int rank = 0;
  std::string host;
};

/// Communication failed, because of these ranks if there are any.
class MissingRanks : public CommError {
 public:
  MissingRanks(const std::string& message, std::vector<RankOnHost> ranks)
      : CommError(message), ranks_(std::move(ranks)) {}
  const std::vector<RankOnHost>& ranks() const { return ranks_; }

 private:
  std::vector<RankOnHost> ranks_;
};

}  // namespace athanor
