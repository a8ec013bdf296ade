#pragma once
// Adds into fp32 gradient buckets on a device, in fixed orders: the result of a matmul, the results of experts,
// embedding rows.

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/element.h"

namespace athanor::kernels::cuda {

/// kernels::accumulate: sum[i] += x[i] for n elements.
template <class T>
void accumulate(const Stream& stream, float* sum, const T* x, int64_t n);

/// Computes sum[g][i] += x[g][i] for the groups that have rows (offsets[g + 1] > offsets[g]). The other groups do not
/// change, whatever x contains there: a grouped matmul need not write the result of a group without rows. sum, x
/// [groups, size].
template <class T>
void accumulate_groups(const Stream& stream, float* sum, const T* x, const int64_t* offsets, int64_t groups,
                       int64_t size);

/// Computes sum[ids[r]] += dy[r] with ascending r for each id: the bits of a loop, without atomics. sum [ids, width];
/// dy [rows, width]; ids are not checked; `workspace` has 2 · rows int64. To find the rows of one id, it reads all ids
/// before it, so it is made for a microbatch (tens of thousands of rows), not for millions.
template <class T>
void accumulate_rows(const Stream& stream, float* sum, const T* dy, const int64_t* ids, int64_t* workspace,
                     int64_t rows, int64_t width);

}  // namespace athanor::kernels::cuda
