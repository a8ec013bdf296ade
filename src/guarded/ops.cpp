// The ops of libtorch on guarded tensors: the CPU's, queued.

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/op_registration.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "guarded/device.h"
#include "guarded/open_view.h"
#include "guarded/ops.h"

namespace athanor::guarded {
namespace {

using at::Tensor;
using torch::jit::Stack;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// Replaces the tensors in a value, also those in lists.
template <class Replace>
c10::IValue replaced(const c10::IValue& value, const Replace& replace) {
  if (value.isTensor()) return value.toTensor().defined() ? replace(value.toTensor()) : value;
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& each : value.toTensorVector()) list.push_back(each.defined() ? replace(each).toTensor() : each);
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor>& each : value.toOptionalTensorVector())
      list.push_back(each && each->defined() ? std::optional(replace(*each).toTensor()) : each);
    return list;
  }
  return value;
}

c10::IValue with_device(const c10::IValue& value, at::Device device) {
  return value.isDevice() && value.toDevice().is_privateuseone() ? c10::IValue(device) : value;
}

// The results' shapes, from libtorch's shape functions; where it has none, from the op on zeros.
Stack shapes_of(const c10::OperatorHandle& op, const Stack& arguments) {
  const bool has_meta = op.hasKernelForDispatchKey(c10::DispatchKey::Meta);
  const auto device = has_meta ? at::Device(at::kMeta) : at::Device(at::kCPU);
  Stack stack;
  for (const auto& each : arguments) {
    stack.push_back(replaced(with_device(each, device), [&](const Tensor& x) -> c10::IValue {
      if (!is_ours(x)) return x;
      const Tensor like = at::empty_strided(x.sizes(), x.strides(), x.options().device(device));
      return has_meta ? like : like.zero_();
    }));
  }
  op.callBoxed(&stack);
  return stack;
}

// Memory is added if there is too little; what was in it is lost.
const Tensor& resize_to(const Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  at::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  const size_t num_bytes =
      (static_cast<size_t>(self.storage_offset()) + static_cast<size_t>(self.numel())) * self.itemsize();
  at::Storage storage = self.storage();
  if (num_bytes > storage.nbytes()) {
    const OnDevice on(self.device().index());
    storage.set_data_ptr_noswap(c10::GetAllocator(at::kPrivateUse1)->allocate(num_bytes));
    storage.set_nbytes(num_bytes);
  }
  return self;
}

// The device on which an op computes: that of its tensors, or the one that it is given for its result.
int device_of(const Stack& arguments) {
  int device = current_device();
  for (const auto& each : arguments) {
    if (each.isDevice() && each.toDevice().is_privateuseone() && each.toDevice().has_index())
      device = each.toDevice().index();
    replaced(each, [&](const Tensor& x) -> c10::IValue {
      if (is_ours(x)) device = x.device().index();
      return x;
    });
  }
  return device;
}

bool is_written(const c10::Argument& argument) { return argument.alias_info() && argument.alias_info()->isWrite(); }

// Returns the results: the arguments that the op writes, or new tensors.
Stack make_results(const c10::OperatorHandle& op, const Stack& arguments) {
  const auto& schema = op.schema();
  Stack results, shapes;
  std::vector<c10::IValue> written;
  for (size_t i = 0; i < arguments.size(); ++i)
    if (is_written(schema.arguments()[i])) written.push_back(arguments[i]);
  size_t next_written = 0;
  for (size_t r = 0; r < schema.returns().size(); ++r) {
    const bool is_given = is_written(schema.returns()[r]);
    if (is_given) results.push_back(written.at(next_written++));
    // An output without elements takes the shape of the result.
    const bool is_shaped = is_given && !(results.back().isTensor() && results.back().toTensor().numel() == 0);
    if (is_shaped) continue;
    if (shapes.empty()) shapes = shapes_of(op, arguments);
    if (is_given) {
      resize_to(results.back().toTensor(), shapes.at(r).toTensor().sizes(), {});
      continue;
    }
    results.push_back(replaced(shapes.at(r), [](const Tensor& x) -> c10::IValue {
      return at::empty_strided(x.sizes(), x.strides(), x.options().device(device_with(current_device())));
    }));
  }
  return results;
}

void collect(const c10::IValue& value, std::vector<Tensor>& tensors) {
  replaced(value, [&](const Tensor& x) -> c10::IValue {
    tensors.push_back(x);
    return x;
  });
}

bool is_product(const c10::OperatorHandle& op) {
  constexpr std::array<std::string_view, 5> kProducts = {"aten::mm", "aten::bmm", "aten::addmm", "aten::addmm_",
                                                         "aten::baddbmm"};
  return std::ranges::find(kProducts, op.schema().name()) != kProducts.end();
}

// On a CPU without instructions for bf16, libtorch's products of bf16 reach 1 GFLOP/s. So products run in fp32 here, on
// every CPU, and are rounded once where they are stored, as devices do it.
c10::IValue widened(const c10::IValue& value) {
  return replaced(
      value, [](const Tensor& x) -> c10::IValue { return x.scalar_type() == at::kBFloat16 ? x.to(at::kFloat) : x; });
}

// Any op: its results have their shapes now, and their values when the queue comes to it.
void queue_op(const c10::OperatorHandle& op, Stack* stack) {
  const at::AutoDispatchBelowAutograd no_autograd;
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size();
  const Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  torch::jit::drop(*stack, count);
  const OnDevice device(device_of(arguments));
  const Stack results = make_results(op, arguments);
  Stack played;
  // Arguments on the device become views of the open mapping; small ones of the host are copied, as launches do it.
  for (const auto& each : arguments) {
    played.push_back(replaced(with_device(each, at::kCPU), [&](const Tensor& x) -> c10::IValue {
      if (!is_ours(x)) {
        ATHANOR_CHECK_AS(Error, x.dim() == 0, "{}: a tensor of the host among those of the device", schema.name());
        return x.clone();
      }
      return OpenView(x).tensor();
    }));
  }
  std::vector<Tensor> result_tensors;
  for (const auto& each : results) collect(each, result_tensors);
  std::vector<OpenView> outputs;
  for (const Tensor& each : result_tensors) outputs.emplace_back(each);
  queues().submit(current_stream(), schema.name().c_str(), [op, played, outputs, wide = is_product(op)] {
    const at::AutoDispatchBelowAutograd below;
    Stack here;
    for (const auto& each : played) here.push_back(wide ? widened(each) : each);
    op.callBoxed(&here);
    std::vector<Tensor> computed;
    for (const auto& each : here) collect(each, computed);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Tensor to = outputs[i].tensor();
      if (computed.at(i).data_ptr() == to.data_ptr()) continue;  // written in place
      to.copy_(computed[i]);
    }
  });
  for (const auto& each : results) stack->push_back(each);
}

// ---- What cannot be queued as it is --------------------------------------------------------------------------------

std::atomic<int64_t> num_to_device{0}, num_to_host{0};

int index_of(const std::optional<at::Device>& device) {
  return device && device->has_index() ? device->index() : current_device();
}

Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const OnDevice on(index_of(device));
  return at::detail::empty_generic(size, c10::GetAllocator(at::kPrivateUse1), kKeys, c10::dtype_or_default(dtype),
                                   format);
}

Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const OnDevice on(index_of(device));
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(at::kPrivateUse1), kKeys,
                                           c10::dtype_or_default(dtype));
}

Tensor view(const Tensor& self, at::IntArrayRef size) { return at::native::view(self, size); }
Tensor as_strided(const Tensor& self, at::IntArrayRef size, at::IntArrayRef stride, std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}
Tensor reshape_alias(const Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}
Tensor unfold(const Tensor& self, int64_t dim, int64_t size, int64_t step) {
  return at::native::unfold(self, dim, size, step);
}

// A copy between host and device may take place late if the host's memory is pinned; else the host waits, as with CUDA.
Tensor& copy(Tensor& self, const Tensor& from, bool non_blocking) {
  const at::AutoDispatchBelowAutograd no_autograd;
  const Tensor source = from.expand_as(self);
  const OnDevice on((is_ours(self) ? self : source).device().index());
  const bool within = is_ours(self) && is_ours(source);
  ATHANOR_CHECK_AS(Error, !within || self.device() == source.device(), "a copy from {} to {}", source.device().str(),
                   self.device().str());
  const Tensor on_host = within ? Tensor() : is_ours(self) ? source : self;
  const bool queued = within || (non_blocking && on_host.is_pinned());
  ATHANOR_CHECK_AS(Error, within || !queues().is_captured(current_stream()),
                   "a copy between host and device while a graph is captured");
  if (!within) ++(is_ours(self) ? num_to_device : num_to_host);
  if (!within && queued && !is_ours(self)) {
    // What the host reads before the copy is done is wrong.
    ATHANOR_ASSERT(self.is_non_overlapping_and_dense());
    std::memset(self.data_ptr(), kPoison, self.nbytes());
  }
  // Pinned memory is kept until the copy is done, as by libtorch's allocators.
  queues().submit(current_stream(), "copy_", [to = OpenView(self), source = OpenView(source), kept = on_host] {
    const at::AutoDispatchBelowAutograd below;
    to.tensor().copy_(source.tensor());
  });
  if (!queued) queues().synchronize(current_stream());
  return self;
}

at::Scalar local_scalar(const Tensor& self) {
  const at::AutoDispatchBelowAutograd no_autograd;
  const OnDevice on(self.device().index());
  const OpenView view(self);
  ++num_to_host;
  queues().synchronize(current_stream());
  return view.tensor().item();
}

Tensor product(const Tensor& a, const Tensor& b) { return at::mm(widened(a).toTensor(), widened(b).toTensor()); }

// Libtorch's grouped product as CUDA has it: it waits for nothing, rows after the last group keep what was in their
// memory, and so may the product of a group without rows.
Tensor grouped_mm(const Tensor& a, const Tensor& b, const std::optional<Tensor>& ends,
                  const std::optional<Tensor>& bias, std::optional<at::ScalarType> dtype) {
  ATHANOR_CHECK_AS(Error, ends && !bias && !dtype && a.dim() == 2, "this form of _grouped_mm is not played");
  const OnDevice on(a.device().index());
  const bool is_outer = b.dim() == 2;
  const std::vector<int64_t> shape =
      is_outer ? std::vector<int64_t>{ends->size(0), a.size(0), b.size(1)} : std::vector<int64_t>{a.size(0), b.size(2)};
  const Tensor out = at::empty(shape, a.options());  // poisoned
  queues().submit(current_stream(), "_grouped_mm",
                  [is_outer, a = OpenView(a), b = OpenView(b), ends = OpenView(*ends), out = OpenView(out)] {
                    const at::AutoDispatchBelowAutograd below;
                    const Tensor left = a.tensor(), right = b.tensor(), to = out.tensor(), end = ends.tensor();
                    for (int64_t g = 0, begin = 0; g < end.numel(); begin = end[g++].item<int64_t>()) {
                      const int64_t rows = end[g].item<int64_t>() - begin;
                      if (rows == 0) continue;
                      if (is_outer) {
                        to[g].copy_(product(left.narrow(1, begin, rows), right.narrow(0, begin, rows)));
                      } else {
                        to.narrow(0, begin, rows).copy_(product(left.narrow(0, begin, rows), right[g]));
                      }
                    }
                  });
  return out;
}

// Products in fp32 of narrow operands, which only CUDA has.
Tensor mm_in_type(const Tensor& a, const Tensor& b, at::ScalarType type) {
  ATHANOR_CHECK_AS(Error, type == at::kFloat, "this form of mm is not played");
  const OnDevice on(a.device().index());
  const Tensor out = at::empty({a.size(0), b.size(1)}, a.options().dtype(type));
  queues().submit(current_stream(), "mm", [a = OpenView(a), b = OpenView(b), out = OpenView(out)] {
    const at::AutoDispatchBelowAutograd below;
    out.tensor().copy_(product(a.tensor(), b.tensor()));
  });
  return out;
}

void record_stream(Tensor& self, c10::Stream stream) {
  if (self.storage().data()) memory(stream.device_index()).note_use(self.storage().mutable_data(), stream.id());
}

}  // namespace

void register_ops() {
  const auto library = [](const char* name_space) {
    return new torch::Library(torch::Library::IMPL, name_space, c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  };
  // They stay as long as the process.
  static torch::Library& all = *library("_");
  static torch::Library& m = *library("aten");
  all.fallback(torch::CppFunction::makeFromBoxedFunction<&queue_op>());
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("view", TORCH_FN(view));
  m.impl("as_strided", TORCH_FN(as_strided));
  m.impl("_reshape_alias", TORCH_FN(reshape_alias));
  m.impl("unfold", TORCH_FN(unfold));
  m.impl("resize_", TORCH_FN(resize_to));
  m.impl("copy_", TORCH_FN(copy));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar));
  m.impl("record_stream", TORCH_FN(record_stream));
  m.impl("_grouped_mm", TORCH_FN(grouped_mm));
  m.impl("mm.dtype", TORCH_FN(mm_in_type));
  register_attention(m);
}

Tensor to_device(const Tensor& x) { return x.to(kDevice); }
Tensor to_host(const Tensor& x) { return x.to(at::kCPU); }

CopyCounts copy_counts() { return {num_to_device, num_to_host}; }

}  // namespace athanor::guarded
