#pragma once
// Makes the results of MKL, with which libtorch multiplies matrices, reproducible bit for bit.

namespace athanor {

/// Tells MKL to compute the same bits wherever its operands lie in memory and however many threads there are (its
/// "strict conditional numerical reproducibility"). Without it, attention of narrow heads in fp32 differed from run to
/// run on three threads and more. MKL reads its environment at its first product: call this before libtorch is loaded.
/// MKL_CBWR, if it is set, stays. On processors of other vendors nothing is set: there MKL would fall back to a slow
/// path.
void ask_for_reproducible_library();

}  // namespace athanor
