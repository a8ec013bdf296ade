#pragma once
// Sums along the fixed tree (index_tree.h) over raw memory: the addition of the terms that a rank has received.
//
// Elements are widened (bf16, fp16, fp32: fp32; fp64: fp64; int64: int64), added in the tree's order and rounded once.
// Bits do not depend on the CPU: no multiplication is fused with an addition.

#include <cstdint>
#include <span>

namespace athanor::comm {

enum class Element { kBf16, kF16, kF32, kF64, kI64 };
enum class Combine { kSum, kMax };  ///< the maximum with a NaN is that NaN

int64_t element_bytes(Element element);
int64_t wide_bytes(Element element);

/// Terms are multiplied by `first` (a power of two) before they are added, and the sum by `last`. For integers both
/// must be 1.
struct Scale {
  double first = 1, last = 1;
};
/// Returns the scale of a mean over `count`: 1/2^⌈log₂ count⌉ first, so that no partial sum is above the largest term.
Scale mean_scale(int count);

/// Sets out[i] to the tree sum over terms[0][i], …, terms[num_terms − 1][i]. `out` may be one of the terms.
void tree_sum(Element element, Combine combine, Scale scale, const void* const* terms, int num_terms, int64_t count,
              void* out);

/// Sets `wide` to the sum of `num_terms` terms, a power of two, in the wide type: the sum of a branch of the tree.
/// Terms are multiplied by `first` before they are added.
void tree_sum_wide(Element element, Combine combine, double first, const void* const* terms, int num_terms,
                   int64_t count, void* wide);

/// Sets out[i] to the tree sum of branches in the wide type, multiplied by `last` and rounded. sizes[b] is the number
/// of terms in branch b (tree_blocks in node_shape.h); the branches follow each other from the first term on.
void sum_blocks(Element element, Combine combine, double last, const void* const* blocks, std::span<const int> sizes,
                int64_t count, void* out);

// The parts of tree_sum when the tree is spread over ranks: a rank widens its term (and multiplies it by `first`), adds
// what its children sent, in order, and the root multiplies by `last` and rounds. `wide` and `term` are of the wide
// type.
void widen(Element element, double first, const void* in, int64_t count, void* wide);
void add_wide(Element element, Combine combine, void* wide, const void* term, int64_t count);
void narrow(Element element, double last, const void* wide, int64_t count, void* out);

}  // namespace athanor::comm
