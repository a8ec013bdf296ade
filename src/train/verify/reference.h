#pragma once
// What a run is held against.

#include <string>

namespace athanor {

enum class Reference {
  kOneRank,   ///< the same code on one rank: in fp32, with errors of its own
  kPortable,  ///< plain torch calls in fp64, written apart from the code that trains (portable/): errs next to nothing
};

/// "one_rank", "portable": what --reference takes.
inline Reference parse_reference(const std::string& name) {
  return name == "portable" ? Reference::kPortable : Reference::kOneRank;
}
/// As tables say it.
inline const char* describe(Reference reference) {
  return reference == Reference::kPortable ? "portable forms in fp64" : "one rank";
}

}  // namespace athanor
