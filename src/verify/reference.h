#pragma once
// The reference that a run is compared with.

#include <c10/core/Device.h>

#include <string>

namespace athanor::inline verify {

enum class Reference {
  kOneRank,  ///< the same code on one rank: in fp32, and has rounding errors too
  /// plain torch calls in fp64, written independently of the training code (portable/): its errors are negligible
  kPortable,
};

/// Where references are computed.
inline const c10::Device kReferenceDevice{c10::kCPU};

/// Parses a value of --reference: "portable", or else "one_rank".
inline Reference parse_reference(const std::string& name) {
  return name == "portable" ? Reference::kPortable : Reference::kOneRank;
}
/// Returns the name that tables use.
inline const char* describe(Reference reference) {
  return reference == Reference::kPortable ? "portable forms in fp64" : "one rank";
}

}  // namespace athanor::inline verify
