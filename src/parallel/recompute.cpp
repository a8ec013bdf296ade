#include "parallel/recompute.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <memory>

namespace athanor::inline parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Region = std::function<std::vector<Tensor>(const Tensor& x)>;

struct SavedRegion : torch::CustomClassHolder {
  Region region;
};

struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Region& region) {
    ctx->save_for_backward({x});
    auto saved = c10::make_intrusive<SavedRegion>();
    saved->region = region;
    ctx->saved_data["region"] = c10::IValue::make_capsule(saved);
    return region(x);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor x = ctx->get_saved_variables()[0].detach().requires_grad_();
    auto saved = ctx->saved_data["region"].toCapsule();
    ctx->saved_data.clear();  // frees what the region holds, before the graph ends with backward
    variable_list outputs;
    {
      const at::AutoGradMode with_gradients(true);
      outputs = static_cast<SavedRegion&>(*saved).region(x);
    }
    ATHANOR_ASSERT(outputs.size() == grads.size());
    variable_list roots, root_grads;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!grads[i].defined() || !outputs[i].requires_grad()) continue;
      roots.push_back(std::move(outputs[i]));
      root_grads.push_back(std::move(grads[i]));
    }
    torch::autograd::backward(roots, root_grads);
    return {x.grad(), Tensor()};
  }
};

}  // namespace

std::vector<Tensor> checkpoint(const Tensor& x, Region region) {
  if (!at::GradMode::is_enabled() || !x.requires_grad()) return region(x);
  return Checkpoint::apply(x, region);
}

void forget_until_backward(const Tensor& forgotten, const Tensor& consumer, std::function<Tensor()> compute) {
  if (!at::GradMode::is_enabled() || !consumer.requires_grad()) return;
  struct Forgotten {
    c10::Storage storage;
    size_t bytes;
    std::function<Tensor()> compute;
  };
  auto state = std::make_shared<Forgotten>(Forgotten{forgotten.storage(), forgotten.nbytes(), std::move(compute)});
  ATHANOR_ASSERT(forgotten.is_contiguous() && state->storage.nbytes() == state->bytes);
  const auto fill = [](const c10::Storage& storage, at::DataPtr data, size_t bytes) {
    storage.set_data_ptr_noswap(std::move(data));
    storage.set_nbytes(bytes);
  };
  fill(state->storage, state->storage.allocator()->allocate(0), 0);
  consumer.register_hook([state, fill](const Tensor&) {
    const at::NoGradGuard no_grad;
    const c10::Storage again = state->compute().storage();
    ATHANOR_ASSERT(again.nbytes() == state->bytes);
    fill(state->storage, again.set_data_ptr(again.allocator()->allocate(0)), state->bytes);
    *state = {};  // the graph, and this hook with it, lives until all of backward is done
  });
}

}  // namespace athanor::inline parallel
