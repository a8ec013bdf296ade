#include "comm/fake/fake_backend.h"

#include <algorithm>
#include <numeric>

#include "comm/backend_decorator.h"

namespace athanor::comm {

namespace {

FakeBackend::Work over() { return c10::make_intrusive<NoWork>(); }

/// Sets out[from, to) to `own`, and the rest to zero. `own` may be that slice itself.
void place(const at::Tensor& out, int64_t begin, const at::Tensor& own) {
  const at::Tensor flat = out.view({-1});
  const int64_t end = begin + own.numel();
  flat.narrow(0, begin, own.numel()).copy_(own.reshape({-1}));
  flat.narrow(0, 0, begin).zero_();
  flat.narrow(0, end, flat.numel() - end).zero_();
}

}  // namespace

FakeBackend::Work FakeBackend::allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) { return over(); }

FakeBackend::Work FakeBackend::_reduce_scatter_base(at::Tensor& out, at::Tensor& in,
                                                    const c10d::ReduceScatterOptions&) {
  out.view({-1}).copy_(in.view({-1}).narrow(0, getRank() * out.numel(), out.numel()));
  return over();
}

FakeBackend::Work FakeBackend::_allgather_base(at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions&) {
  place(out, getRank() * in.numel(), in);
  return over();
}

FakeBackend::Work FakeBackend::alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& out_rows,
                                             std::vector<int64_t>& in_rows, const c10d::AllToAllOptions&) {
  if (out_rows.empty()) {
    const int64_t part = in.numel() / getSize();
    place(out, getRank() * part, in.view({-1}).narrow(0, getRank() * part, part));
    return over();
  }
  const auto me = static_cast<size_t>(getRank());
  const auto before = [&](const std::vector<int64_t>& rows) {
    return std::accumulate(rows.begin(), rows.begin() + getRank(), int64_t{0});
  };
  const int64_t width = in.size(0) == 0 ? 0 : in.numel() / in.size(0);
  place(out, before(out_rows) * width, in.narrow(0, before(in_rows), std::min(in_rows[me], out_rows[me])));
  return over();
}

FakeBackend::Work FakeBackend::broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) {
  if (options.rootRank != getRank()) tensors.at(0).zero_();
  return over();
}

FakeBackend::Work FakeBackend::send(std::vector<at::Tensor>&, int, int) { return over(); }

FakeBackend::Work FakeBackend::recv(std::vector<at::Tensor>& tensors, int, int) {
  tensors.at(0).zero_();
  return over();
}

FakeBackend::Work FakeBackend::barrier(const c10d::BarrierOptions&) { return over(); }

}  // namespace athanor::comm
