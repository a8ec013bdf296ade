// Dispatch on devices that the host plays: what it waits for, and that no order of the streams changes a bit.
// (dispatch_test.cpp compares the same forms on CPU tensors with the definition.)

#include "comm/testing/guarded_groups.h"
#include "moe/dispatch_exchange.h"
#include "moe/testing/dispatch_case.h"
#include "ops/device/dispatch_without_kernels.h"
#include "ops/tokens_per_rank.h"
#include "ops/transfer.h"

namespace athanor::moe::dispatch_device_test {
namespace {

using namespace test;  // NOLINT
using guarded::Order;

// Autograd starts a thread for each device that exists when it is first used.
const bool kInstalled = (guarded::install_for_tests(), true);
const at::Device kDevice = guarded::device_of_tests();

Tensor there(const Tensor& x) { return x.to(kDevice); }
Tensor here(const Tensor& x) { return ops::fetch(x.detach()).clone(); }

class DispatchOnDevice : public ::testing::Test {
 protected:
  void TearDown() override {
    guarded::queues().set_order({});
    guarded::set_kernels(true);
  }
};

// No choice is of an expert elsewhere; some are dropped.
DispatchCase one_rank(at::ScalarType dtype) {
  return {.tokens = {23}, .num_experts = 6, .k = 3, .dtype = dtype, .drops = true};
}

ops::ExpertWeights experts_of(const DispatchCase& c, at::Device device) {
  return moved(c.experts(0, c.num_experts), device);
}

RankResult run_on(const DispatchCase& c, at::Device device, DispatchOptions options, const KnownTokens& known) {
  options.device_form = true;
  const auto world = comm::World::open({});
  Dispatch dispatch(world->all(), options);
  const ops::ExpertWeights w = experts_of(c, device);
  const Tensor ids = c.ids(0).to(device);
  const auto outcome = run([&](const auto& in) { return dispatch.experts(in[0], in[1], ids, w, c.combine, known); },
                           {c.x(0).to(device), c.weights(0).to(device)}, c.dy(0).to(device));
  RankResult result{here(outcome.y), here(outcome.dx[0]), here(outcome.dx[1]), {}};
  for (const Tensor& grad : buckets(w)) result.grads.push_back(here(grad));
  return result;
}

std::vector<DispatchOptions> ways() {
  std::vector<DispatchOptions> all;
  for (const int64_t chunks : {1, 3}) {
    for (const auto kind : {DispatchKind::kAllGather, DispatchKind::kAllToAll, DispatchKind::kAllToAll2d})
      all.push_back({kind, chunks, chunks == 1 ? 1 : 2});
  }
  return all;
}

TEST_F(DispatchOnDevice, EveryOrderOfTheStreamsHasTheBitsOfCpuTensors) {
  for (const auto dtype : kComputeTypes) {
    const DispatchCase c = one_rank(dtype);
    for (const DispatchOptions& way : ways()) {
      const RankResult expected = run_on(c, at::kCPU, way, {});
      for (const KnownTokens& known :
           {KnownTokens{.equal = true}, {.equal = false}, {.equal = true, .most_of_expert = c.most_of_expert()}}) {
        for (const Order& order :
             {Order{}, Order{Order::Kind::kLatest}, Order{Order::Kind::kDrawn, 1}, Order{Order::Kind::kDrawn, 2}}) {
          guarded::queues().set_order(order);
          expect_same({run_on(c, kDevice, way, known)}, {expected},
                      fmt::format("{} in {} chunks", word_of(way.kind), way.chunks));
        }
      }
    }
  }
}

// Runs a case over ranks with a device each.
std::vector<std::vector<RankResult>> run_on_devices(const DispatchCase& c, const std::vector<DispatchOptions>& options,
                                                    const Order& order) {
  std::vector<std::vector<RankResult>> results(options.size(), std::vector<RankResult>(c.tokens.size()));
  comm::run_device_ranks(c.ranks(), [&](comm::World& world, at::Device device) {
    guarded::queues().set_order(order);
    std::vector<int> ranks;
    for (int r = 0; r < c.ranks(); ++r) ranks.push_back(r);
    const auto group = world.make_group({ranks}, "expert", device);
    for (size_t way = 0; way < options.size(); ++way) {
      Dispatch dispatch(*group, options[way]);
      results[way][static_cast<size_t>(world.rank())] = run_rank(c, dispatch, device);
    }
    guarded::queues().synchronize_all();
    world.all().barrier();
    guarded::queues().set_order({});
  });
  return results;
}

const Order kOrders[] = {Order{}, Order{Order::Kind::kLatest}, Order{Order::Kind::kDrawn, 1},
                         Order{Order::Kind::kDrawn, 2}};

// @param share  a case has every order if 1, and every second one if 2, the next case the others
void expect_the_bits_of_ranks_on_cpu_tensors(size_t share) {
  std::vector<DispatchOptions> options = ways();
  for (DispatchOptions way : ways()) {
    way.inner_ranks = 2;
    if (way.kind == DispatchKind::kAllToAll2d) options.push_back(way);
  }
  size_t turn = 0;
  for (DispatchCase c : {DispatchCase{.tokens = {13, 13, 13, 13}, .num_experts = 8, .k = 3, .dtype = at::kBFloat16},
                         {.tokens = {0, 11, 1, 4}, .num_experts = 8, .k = 2, .drops = true},
                         {.tokens = {9, 9}, .num_experts = 16, .k = 2, .is_bounded = true}}) {
    c.device_form = true;
    const auto expected = run_case(c, options);
    for (size_t i = turn++ % share; i < std::size(kOrders); i += share) {
      const auto actual = run_on_devices(c, options, kOrders[i]);
      for (size_t way = 0; way < options.size(); ++way)
        expect_same(actual[way], expected[way],
                    fmt::format("{} in {} chunks", word_of(options[way].kind), options[way].chunks));
    }
  }
}

TEST_F(DispatchOnDevice, RanksWithADeviceEachHaveTheBitsOfRanksOnCpuTensorsInEveryOrderOfTheStreams) {
  expect_the_bits_of_ranks_on_cpu_tensors(2);
}

class TestAllDispatchOnDevice : public DispatchOnDevice {};

TEST_F(TestAllDispatchOnDevice, RanksWithADeviceEachHaveTheBitsOfRanksOnCpuTensorsForEachCaseAndOrder) {
  expect_the_bits_of_ranks_on_cpu_tensors(1);
}

// The portable form of the experts rounds elsewhere: each result goes through some ten roundings of sums of 20 terms.
TEST_F(DispatchOnDevice, WithoutKernelsOnlyRoundingDiffers) {
  for (const auto dtype : kComputeTypes) {
    const DispatchCase c = one_rank(dtype);
    for (const DispatchOptions& way : ways()) {
      guarded::set_kernels(true);
      const RankResult expected = run_on(c, kDevice, way, {});
      guarded::set_kernels(false);
      guarded::queues().set_order({Order::Kind::kDrawn, 3});
      const auto near = [&](const Tensor& a, const Tensor& e, const char* what) {
        const double size = e.to(at::kDouble).norm().item<double>(),
                     off = (a.to(at::kDouble) - e.to(at::kDouble)).norm().item<double>();
        EXPECT_LE(off, 10 * ops::error_bound(size, dtype, c.hidden + c.ffn)) << what << " of " << word_of(way.kind);
      };
      // Padding changes how many rows the library multiplies at once.
      for (const KnownTokens& known : {KnownTokens{}, {.equal = true, .most_of_expert = c.most_of_expert()}}) {
        const RankResult actual = run_on(c, kDevice, way, known);
        near(actual.y, expected.y, "y");
        near(actual.dx, expected.dx, "dx");
        near(actual.dweights, expected.dweights, "dweights");
        for (size_t i = 0; i < 3; ++i) near(actual.grads[i], expected.grads[i], "a weight");
      }
    }
  }
}

struct Waits {
  int64_t first = 0, repeated = 0;  // in a forward and backward, and in one more with the same choices
};

Waits count_waits(DispatchKind kind, int64_t chunks, bool equal, int64_t most_of_expert = -1) {
  const DispatchCase c = one_rank(at::kBFloat16);
  const auto world = comm::World::open({});
  Dispatch dispatch(world->all(), {kind, chunks});
  const ops::ExpertWeights w = experts_of(c, kDevice);
  const Tensor x = there(c.x(0)), weights = there(c.weights(0)), ids = there(c.ids(0)), dy = there(c.dy(0));
  const KnownTokens known{.equal = equal, .counts = std::make_shared<RowCounts>(), .most_of_expert = most_of_expert};
  const auto pass = [&] {
    const int64_t before = guarded::queues().counts().waits, counted = ops::transfer_counts().waits;
    const int64_t copies = guarded::copy_counts().to_device;
    run([&](const auto& in) { return dispatch.experts(in[0], in[1], ids, w, c.combine, known); }, {x, weights}, dy);
    const int64_t waits = guarded::queues().counts().waits - before;
    EXPECT_EQ(ops::transfer_counts().waits - counted, waits) << "a wait that is not counted";
    EXPECT_EQ(guarded::copy_counts().to_device, copies);
    return waits;
  };
  const int64_t first = pass();
  return {first, pass()};
}

TEST_F(DispatchOnDevice, AllGatherWaitsForNothingAndAllToAllOnceWithOneHopOrTwoNeitherInBackwardNorInARepetition) {
  for (const int64_t chunks : {1, 4}) {
    const Waits gathered = count_waits(DispatchKind::kAllGather, chunks, true);
    EXPECT_EQ(gathered.first, 0);
    EXPECT_EQ(gathered.repeated, 0);
    EXPECT_EQ(count_waits(DispatchKind::kAllGather, chunks, false).first, 1);  // in validation
    const Waits sent = count_waits(DispatchKind::kAllToAll, chunks, true);
    EXPECT_EQ(sent.first, 1);
    EXPECT_EQ(sent.repeated, 0);
    const Waits in_two_hops = count_waits(DispatchKind::kAllToAll2d, chunks, true);
    EXPECT_EQ(in_two_hops.first, 1);
    EXPECT_EQ(in_two_hops.repeated, 0);
    for (const auto kind : {DispatchKind::kAllToAll, DispatchKind::kAllToAll2d})
      EXPECT_EQ(count_waits(kind, chunks, true, one_rank(at::kBFloat16).most_of_expert()).first, 0);
  }
}

// In the latest order, counts that are read before they have come are those of poisoned memory.
TEST_F(DispatchOnDevice, CountsThatAreReadTooEarlyAreNoCounts) {
  guarded::queues().set_order({Order::Kind::kLatest});
  const DispatchCase c = one_rank(at::kFloat);
  const auto world = comm::World::open({});
  Dispatch dispatch(world->all(), {DispatchKind::kAllToAll, 1});
  const at::NoGradGuard no_grad;
  const ops::ExpertWeights w = experts_of(c, kDevice);
  const Tensor x = there(c.x(0)), weights = there(c.weights(0)), ids = there(c.ids(0));
  guarded::queues().skip(0);
  EXPECT_ANY_THROW(dispatch.experts(x, weights, ids, w));
  guarded::queues().skip(-1);
}

TEST_F(DispatchOnDevice, WhatIsComputedMeanwhileIsQueuedBeforeTheWait) {
  const DispatchCase c = one_rank(at::kFloat);
  const auto world = comm::World::open({});
  Dispatch dispatch(world->all(), {DispatchKind::kAllToAll, 1});
  const ops::ExpertWeights w = experts_of(c, kDevice);
  const Tensor x = there(c.x(0)), weights = there(c.weights(0)), ids = there(c.ids(0));
  const int64_t before = guarded::queues().counts().waits;
  int64_t calls = 0, waits = -1;
  dispatch.experts(x, weights, ids, w, c.combine, {}, [&] {
    ++calls;
    waits = guarded::queues().counts().waits - before;
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(waits, 0);
}

// What the kernels compute for hops, in torch ops.
TEST_F(DispatchOnDevice, TorchOpsOrderCountAndAddAsTheKernelsDo) {
  namespace plain = ops::device_dispatch::without_kernels;
  const auto same = [](const Tensor& a, const Tensor& b, const char* what) {
    expect_same_bits(here(a), here(b), what);
  };
  for (const auto& [chunks, room] : {std::pair<int64_t, int64_t>{1, -1}, {3, -1}, {1, 31}, {3, 11}}) {
    const DispatchCase c{.tokens = {31}, .num_experts = 12, .k = 3, .drops = true};
    const ops::device_dispatch::PeersOfHop peers{3, 2, 4};  // experts 0 to 2 and 11 are elsewhere
    ops::device_dispatch::HopTokens tokens{there(c.ids(0)), {}};
    for (int64_t i = 0; i <= chunks; ++i) tokens.chunk_begin.push_back(chunk_begin(31, chunks, i));
    const Tensor weights = there(c.weights(0)), counts = there(at::zeros({4 * chunks}, at::kLong)),
                 plain_counts = at::zeros_like(counts);
    const ops::device_dispatch::SortedRows rows = ops::device_dispatch::sort_rows(tokens, peers, room),
                                           plain_rows = plain::sort_rows(tokens, peers, 31 * 3, room);
    same(rows.offsets, plain_rows.offsets, "offsets");
    same(rows.row_of, plain_rows.row_of, "rows of tokens");
    const auto total = here(rows.offsets)[-1].item<int64_t>();
    ASSERT_GT(total, 31);
    const auto of_rows = [&](const Tensor& x) { return x.narrow(0, 0, total); };
    same(of_rows(rows.choice_of_row), of_rows(plain_rows.choice_of_row), "tokens of rows");
    ops::device_dispatch::count_rows(tokens, peers, counts);
    plain::count_rows(tokens, peers, plain_counts);
    same(counts, plain_counts, "counts");
    const Tensor of_messages = room < 0 ? counts : at::full_like(counts, room);
    const int64_t most = rows.choice_of_row.numel();
    const ops::device_dispatch::RowOrder order = ops::device_dispatch::order_rows(of_messages, 4, chunks, most),
                                         plain_order = plain::order_rows(of_messages, 4, chunks, most);
    same(of_rows(order.by_chunk), of_rows(plain_order.by_chunk), "order");
    same(order.begins, plain_order.begins, "begins of chunks");

    const Tensor packed = of_rows(ops::device_dispatch::pack_choices(weights, tokens.ids_TK, rows, order.by_chunk));
    const Tensor plain_packed = of_rows(plain::pack_choices(weights, tokens.ids_TK, plain_rows, plain_order.by_chunk));
    same(packed, plain_packed, "packed");
    const auto unpacked = ops::device_dispatch::unpack_choices(packed, of_rows(order.by_chunk)),
               plain_unpacked = plain::unpack_choices(packed, of_rows(order.by_chunk));
    same(unpacked.ids_NK, plain_unpacked.ids_NK, "ids");
    same(unpacked.weights_NK, plain_unpacked.weights_NK, "weights");
    for (const auto dtype : kComputeTypes) {
      const Tensor parts = there(normal({total, 20}, 9, dtype));
      const Tensor sum = at::empty({31, 20}, parts.options()), plain_sum = at::empty_like(sum);
      ops::device_dispatch::sum_rows(parts, rows.row_of, 0, sum);
      plain::sum_rows(parts, rows.row_of, 0, plain_sum);
      same(sum, plain_sum, "sums");
    }
    const Tensor gradients = there(normal({total, 3}, 11));
    same(ops::device_dispatch::take_weight_gradients(gradients, tokens, peers, rows.row_of),
         plain::take_weight_gradients(gradients, tokens, peers, rows.row_of), "gradients of weights");
  }
}

// Experts 0 to 7 on four ranks, an expert that no rank has, and dropped choices.
TEST_F(DispatchOnDevice, TokensOfEachRankAreCountedThereAsOnTheHost) {
  for (const int64_t tokens : {0, 1, 300}) {
    at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(tokens) + 1);
    const Tensor ids = at::randint(-2, 10, {tokens, 3}, generator, at::kLong);
    EXPECT_TRUE(at::equal(here(ops::tokens_per_rank(there(ids), 2, 4)), ops::tokens_per_rank(ids, 2, 4))) << tokens;
  }
}

}  // namespace
}  // namespace athanor::moe::dispatch_device_test
