#pragma once
// Used by every op: libtorch's tensor, its number types, typed pointers into it, and loops over rows.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <type_traits>

#include "base/error.h"
#include "base/number_types.h"
#include "kernels/element.h"

#if !defined(_OPENMP) && !defined(__SANITIZE_THREAD__)
#error "at::parallel_for is a serial loop without -fopenmp"
#endif

namespace athanor {

using at::Tensor;

/// A parameter as ops see it: the value that forward reads, and the slice of the fp32 gradients that backward adds
/// into. The compute type is that of train.dtype: bf16 or fp32. Parameters are no autograd leaves: their gradient is a
/// side effect of backward, in a fixed order.
struct Weight {
  Tensor value;  ///< compute type
  Tensor grad;   ///< fp32, same shape; undefined in evaluation

  bool defined() const { return value.defined(); }
};

namespace ops {

/// Returns the number of rows of a tensor seen as [rows, width]: all dims but the last folded.
inline int64_t num_rows(const Tensor& x) { return x.numel() / std::max<int64_t>(x.size(-1), 1); }

/// Calls f with a null pointer of the element type: `with_element(x, [&](auto* tag) { using T =
/// std::decay_t<decltype(*tag)>; … })`.
template <class F>
void with_element(const Tensor& x, F f) {
  if (x.scalar_type() == at::kFloat) {
    f(static_cast<float*>(nullptr));
  } else if (x.scalar_type() == at::kBFloat16) {
    f(static_cast<kernels::Bf16*>(nullptr));
  } else {
    fail<Error>("bug: a kernel for {} is missing", c10::toString(x.scalar_type()));
  }
}

/// Returns libtorch's name for an element type of kernels.
template <class T>
constexpr at::ScalarType scalar_type_of() {
  return c10::CppTypeToScalarType<std::conditional_t<std::is_same_v<T, kernels::Bf16>, c10::BFloat16, T>>::value;
}

/// True while this thread plays a step on a device (played.h).
bool plays_device();
/// Returns the threads that compute on the host; in a step that is played on a planned host, those that it would have.
int num_threads();

/// True if the forms of the host compute on x: it is in the host's memory, or stands for such a tensor in a played step
/// (played.h), with a shape and without memory. If a device is played, meta tensors stand for those of the device.
inline bool on_host(at::Device device) { return device.is_cpu() || (device.is_meta() && !plays_device()); }
inline bool on_host(const Tensor& x) { return x.is_cpu() || (x.is_meta() && !plays_device()); }

/// Returns the address of the first element, after a check of the type and that x is on the host. That of a meta tensor
/// is not null, and nothing may read or write there.
template <class T>
T* address_of(const Tensor& x) {
  ATHANOR_ASSERT(x.scalar_type() == scalar_type_of<T>() && on_host(x));
  constexpr uintptr_t kNowhere = 64;
  return x.is_meta() ? reinterpret_cast<T*>(kNowhere) : static_cast<T*>(x.data_ptr());
}

/// The same for a contiguous tensor, which it checks: kernels know no strides.
template <class T>
T* pointer(const Tensor& x) {
  ATHANOR_ASSERT(x.is_contiguous());
  return address_of<T>(x);
}

/// The same, or null for an undefined tensor.
template <class T>
T* pointer_or_null(const Tensor& x) {
  return x.defined() ? pointer<T>(x) : nullptr;
}

/// Returns the type in which a portable form computes: fp32, or fp64 for fp64 arguments, so that it can be its own
/// exact oracle.
inline at::ScalarType wide_type(const Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

/// Runs f(begin, end) over [0, rows) on every thread; rows must be independent, so that the split does not matter.
template <class F>
void for_rows(int64_t rows, int64_t elements_per_row, F f) {
  // A thread is worth waking for about 16 K elements (a few microseconds of work).
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(elements_per_row, 1));
  at::parallel_for(0, rows, grain, f);
}

// The number types of configurations (base/number_types.h) as types of tensors.

inline at::ScalarType scalar_type(NumberType type) { return type == NumberType::kFloat32 ? at::kFloat : at::kBFloat16; }

/// Returns the type of a tensor in which training computes.
inline NumberType number_type_of(at::ScalarType type) {
  return type == at::kFloat ? NumberType::kFloat32 : NumberType::kBFloat16;
}

/// Returns "float32" or "bfloat16".
inline const char* type_name(at::ScalarType type) { return name_of(number_type_of(type)); }

}  // namespace ops

}  // namespace athanor
