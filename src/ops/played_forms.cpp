#include "ops/played_forms.h"

#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "ops/tensor.h"

namespace athanor::ops {
namespace {

Tensor index_select_shape(const Tensor& x, int64_t dim, const Tensor& index) {
  auto shape = x.sizes().vec();
  shape.at(static_cast<size_t>(at::maybe_wrap_dim(dim, x.dim()))) = index.numel();
  return at::empty(shape, x.options());
}

Tensor where_shape(const Tensor& condition, const Tensor& x, const Tensor& y) {
  const auto shape = at::infer_size(condition.sizes(), at::infer_size(x.sizes(), y.sizes()));
  return at::empty(shape, condition.options().dtype(at::result_type(x, y)));
}

Tensor& where_into(const Tensor& condition, const Tensor& x, const Tensor& y, Tensor& out) {
  out.resize_(at::infer_size(condition.sizes(), at::infer_size(x.sizes(), y.sizes())));
  return out;
}

Tensor searched(const Tensor& /*sorted*/, const Tensor& x, bool out_int32, bool /*right*/,
                std::optional<c10::string_view> /*side*/, const std::optional<Tensor>& /*sorter*/) {
  return at::empty_like(x, x.options().dtype(out_int32 ? at::kInt : at::kLong));
}

// libtorch's own form grows an empty tensor, which no allocator sees.
Tensor range_shape(const at::Scalar& begin, const at::Scalar& end, std::optional<at::ScalarType> dtype,
                   std::optional<at::Layout> /*layout*/, std::optional<at::Device> /*device*/,
                   std::optional<bool> /*pinned*/) {
  const double count = std::max(0.0, std::ceil(end.toDouble() - begin.toDouble()));
  return at::empty({static_cast<int64_t>(count)}, at::TensorOptions(dtype.value_or(at::kLong)).device(at::kMeta));
}
Tensor range_from_zero(const at::Scalar& end, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                       std::optional<at::Device> device, std::optional<bool> pinned) {
  return range_shape(0, end, dtype, layout, device, pinned);
}

Tensor logical_shape(const Tensor& x, const Tensor& y) {
  return at::empty(at::infer_size(x.sizes(), y.sizes()), x.options().dtype(at::kBool));
}

Tensor& logical_into(const Tensor& x, const Tensor& y, Tensor& out) {
  out.resize_(at::infer_size(x.sizes(), y.sizes()));
  return out;
}

Tensor one_number(const Tensor& x) { return at::empty({}, x.options()); }

Tensor same_shape(const Tensor& x) { return at::empty_like(x); }

Tensor bool_shape(const Tensor& x) { return at::empty_like(x, x.options().dtype(at::kBool)); }

Tensor& not_into(const Tensor& x, Tensor& out) {
  out.resize_(x.sizes());
  return out;
}

}  // namespace

void install_played_forms() {
  static auto* const library = [] {
    auto* made = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
    made->impl("abs", same_shape);
    made->impl("arange", range_from_zero);
    made->impl("arange.start", range_shape);
    made->impl("isnan", bool_shape);
    made->impl("logical_and", logical_shape);
    made->impl("logical_and.out", logical_into);
    made->impl("logical_not", bool_shape);
    made->impl("logical_not.out", not_into);
    made->impl("logical_or", logical_shape);
    made->impl("logical_or.out", logical_into);
    made->impl("index_select", index_select_shape);
    made->impl("max", one_number);
    made->impl("min", one_number);
    made->impl("searchsorted.Tensor", searched);
    made->impl("where.self", where_shape);
    made->impl("where.self_out", where_into);
    return made;
  }();
  ATHANOR_ASSERT(library);
}

}  // namespace athanor::ops
