#pragma once
// Where the weights of a token's experts enter: an option of the configuration, and of the op that computes experts.

namespace athanor {

/// The side of an expert's down projection on which the router's probability w is multiplied: y = w · down(a), or y =
/// down(w · a). Both are equal up to rounding.
enum class CombineWeights { kAfterDown, kBeforeDown };

}  // namespace athanor
