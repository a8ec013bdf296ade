#pragma once
// What a run is held against.

namespace athanor {

enum class Reference {
  kOneRank,   ///< the same code on one rank: in fp32, with errors of its own
  kPortable,  ///< plain torch calls in fp64, written apart from the code that trains (portable/): errs next to nothing
};

}  // namespace athanor
