#pragma once
// A failure that needs no further line.

#include "base/error.h"

namespace athanor {

/// Communication failed on several ranks, and one of them has printed the message for all.
class ToldError : public CommError {
 public:
  using CommError::CommError;
};

}  // namespace athanor
