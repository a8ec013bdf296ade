#pragma once
// Tensors of the device as its queued work sees them.

#include "guarded/device.h"

namespace athanor::guarded {

inline bool is_ours(const at::Tensor& x) { return x.defined() && x.is_privateuseone(); }

/// A tensor of the host over the open mapping. It owns nothing, as a pointer in a kernel's arguments does not.
struct OpenView {
  void* data;
  std::vector<int64_t> sizes, strides;
  at::ScalarType dtype;

  explicit OpenView(const at::Tensor& x)
      : data(is_ours(x) ? memory(x.device().index()).open(static_cast<std::byte*>(x.data_ptr())) : x.data_ptr()),
        sizes(x.sizes().vec()), strides(x.strides().vec()), dtype(x.scalar_type()) {}
  at::Tensor tensor() const { return at::from_blob(data, sizes, strides, at::TensorOptions(dtype)); }
};

}  // namespace athanor::guarded
