// Collectives of the device's library, for one rank. On a machine without an NVIDIA GPU they are skipped.

#include <gtest/gtest.h>

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "comm/device/open.h"
#include "comm/device_backend.h"
#include "comm/testing/collectives.h"
#include "comm/thread_ranks.h"

namespace athanor::comm::nccl_test {
namespace {

using namespace std::chrono_literals;

std::string why_not() {
  if (!have_nccl()) return "this build has no NCCL";
  const auto* guard = c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::DeviceType::CUDA)].load();
  return guard && guard->deviceCount() > 0 ? "" : "there is no GPU";
}

// Calls `body` with a backend whose group is this rank alone.
void with_one_rank(const std::function<void(c10d::Backend&, at::Device)>& body) {
  run_ranks(1, [&](World& world) {
    const at::Device device(c10::DeviceType::CUDA, 0);
    const auto backend = open_nccl({open_store(world, 20s), 0, 1, 60s, device, nullptr});
    body(*backend, device);
  });
}

TEST(Nccl, OneRankGetsBackWhatItGives) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  with_one_rank([](c10d::Backend& backend, at::Device device) {
    for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble, at::kLong}) {
      const Tensor terms = term_of(0, 1, 1000, type);
      std::vector<Tensor> x{terms.to(device)};
      Tensor out = at::empty_like(x[0]);
      std::vector<int64_t> even_out, even_in;
      backend.allreduce(x)->wait();
      EXPECT_TRUE(same_bits(x[0].cpu(), terms)) << "all-reduce";
      backend.broadcast(x)->wait();
      backend._allgather_base(out, x[0])->wait();
      EXPECT_TRUE(same_bits(out.cpu(), terms)) << "all-gather";
      out.zero_();
      backend._reduce_scatter_base(out, x[0])->wait();
      EXPECT_TRUE(same_bits(out.cpu(), terms)) << "reduce-scatter";
      out.zero_();
      backend.alltoall_base(out, x[0], even_out, even_in)->wait();
      EXPECT_TRUE(same_bits(out.cpu(), terms)) << "all-to-all";
    }
  });
}

TEST(Nccl, ItsWorkEndsAndReportsNoException) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  with_one_rank([](c10d::Backend& backend, at::Device device) {
    std::vector<Tensor> x{at::ones({1 << 20}, at::TensorOptions(device))};
    const auto work = backend.allreduce(x);
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (!work->isCompleted() && std::chrono::steady_clock::now() < end) continue;
    EXPECT_TRUE(work->isCompleted());
    EXPECT_EQ(work->exception(), nullptr);
  });
}

}  // namespace
}  // namespace athanor::comm::nccl_test
