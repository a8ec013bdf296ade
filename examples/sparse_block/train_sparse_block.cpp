// Trains a sparse layer of Athanor in a program of one's own: it learns what another, random layer computes.
//
//   train_sparse_block [STEPS]
//
// The output has the loss of the first step and of the last one, as a share of what a layer would have that returns
// zeros.

#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "blocks/library/sparse_layer.h"

namespace {

constexpr int64_t kHidden = 16, kIntermediate = 32, kExperts = 4, kTokens = 512;
const athanor::SparseLayerOptions kOptions{.choices = 2, .norm_topk_prob = true};

struct Layer {
  torch::Tensor router, gate_up, down;

  explicit Layer(double deviation)
      : router(torch::randn({kExperts, kHidden}) * deviation),
        gate_up(torch::randn({kExperts, 2 * kIntermediate, kHidden}) * deviation),
        down(torch::randn({kExperts, kHidden, kIntermediate}) * deviation) {}

  torch::Tensor operator()(const torch::Tensor& x) const {
    return athanor::sparse_layer(x, router, gate_up, down, kOptions).y;
  }
};

void train(int64_t steps) {
  torch::manual_seed(1);
  const Layer teacher(0.5), student(0.3);
  std::vector<torch::Tensor> parameters = {student.router, student.gate_up, student.down};
  for (torch::Tensor& parameter : parameters) parameter.requires_grad_();
  torch::optim::AdamW optimizer(parameters, torch::optim::AdamWOptions(2e-2));
  for (int64_t step = 1; step <= steps; ++step) {
    const auto x = torch::randn({4, kTokens / 4, kHidden});
    const auto target = teacher(x).detach();
    optimizer.zero_grad();
    const auto loss = torch::mse_loss(student(x), target) / target.square().mean();
    loss.backward();
    optimizer.step();
    if (step == 1 || step == steps) std::printf("step %lld: %.4f\n", static_cast<long long>(step), loss.item<double>());
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    train(argc > 1 ? std::atoll(argv[1]) : 300);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_sparse_block: %s\n", error.what());
    return 1;
  }
}
