#pragma once
// The operations between an expert's matrix products, on a device; kernels/expert_activation.h has the definitions.

#include <cstdint>

#include "base/gated_unit.h"
#include "kernels/cuda/routing.h"
#include "kernels/cuda/stream.h"
#include "kernels/element.h"

namespace athanor::kernels::cuda {

/// kernels::expert_activation for all rows, with the same bits. What is after the last row stays as it is, here and
/// below.
template <class T>
void expert_activation(const Stream& stream, const T* gate, const T* up, const float* weights, const ExpertRows& rows,
                       T* act, int64_t width, const GatedUnit& unit = {});

/// kernels::expert_activation_backward for all rows. The bits are the same, except those of dweights, which are summed
/// in a team's order.
template <class T>
void expert_activation_backward(const Stream& stream, const T* gate, const T* up, T* dact, T* dup, T* act,
                                const float* weights, const ExpertRows& rows, float* dweights, int64_t width,
                                const GatedUnit& unit = {});

/// kernels::expert_gelu and its backward for all rows, as above.
template <class T>
void expert_gelu(const Stream& stream, const T* up, const float* weights, const ExpertRows& rows, T* act,
                 int64_t width);
template <class T>
void expert_gelu_backward(const Stream& stream, const T* up, T* dact, T* act, const float* weights,
                          const ExpertRows& rows, float* dweights, int64_t width);

}  // namespace athanor::kernels::cuda
