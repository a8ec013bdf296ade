#pragma once
// The error of a wire that knows which rank it has lost.

#include <stdexcept>
#include <string>

namespace athanor::comm {

class LostRank : public std::runtime_error {
 public:
  LostRank(int rank, const std::string& message) : std::runtime_error(message), rank_(rank) {}
  int rank() const { return rank_; }

 private:
  int rank_;
};

}  // namespace athanor::comm
