// Every collective, over ranks that are threads, is compared with the contract in its header.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "comm/testing/collectives.h"
#include "comm/thread_ranks.h"

namespace athanor::comm::communicator_test {
namespace {

constexpr int kSizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12};
const at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong};
// Elements of one part: for small and large all-reduces, and none at all.
constexpr int64_t kCounts[] = {0, 1, 257, 5001};

std::string label(const char* what, int n, int64_t count, at::ScalarType type) {
  return fmt::format("{} of {} {} over {}", what, count, c10::toString(type), n);
}

std::vector<Tensor> terms_of_all(int n, int call, int64_t count, at::ScalarType type) {
  std::vector<Tensor> terms;
  for (int r = 0; r < n; ++r) terms.push_back(term_of(r, call, count, type));
  return terms;
}

std::vector<Reduction> reductions(at::ScalarType type) {
  if (type == at::kLong) return {Reduction::kSum, Reduction::kMax};
  return {Reduction::kSum, Reduction::kMean, Reduction::kMax};
}

// Terms, and what the tree makes of them by each reduction, computed once for all ranks.
struct Sums {
  at::ScalarType type;
  int64_t count;
  std::vector<Tensor> terms;
  std::vector<std::pair<Reduction, Tensor>> expected;

  const Tensor& term(int rank) const { return terms[static_cast<size_t>(rank)]; }
};

std::vector<Sums> sums_of(int n, int call, int64_t parts,
                          const std::function<std::vector<Reduction>(at::ScalarType)>& reductions_of) {
  std::vector<Sums> all;
  for (at::ScalarType type : kTypes) {
    for (int64_t count : kCounts) {
      Sums& one = all.emplace_back(Sums{type, count, terms_of_all(n, call, count * parts, type), {}});
      for (Reduction reduction : reductions_of(type))
        one.expected.emplace_back(reduction, tree_of(one.terms, reduction));
    }
  }
  return all;
}

TEST(Communicator, AllReduceIsTheTreeBitForBit) {
  for (int n : kSizes) {
    const std::vector<Sums> all = sums_of(n, 1, 1, reductions);
    run_ranks(n, [&](World& world) {
      for (const Sums& one : all) {
        for (const auto& [reduction, expected] : one.expected) {
          const Tensor x = one.term(world.rank()).clone();
          world.all().all_reduce(x, reduction).wait();
          require(same_bits(x, expected), label("all_reduce", n, one.count, one.type));
        }
      }
    });
  }
}

TEST(Communicator, ReduceScatterIsTheTreeBitForBitAndLeavesTheOtherPartsAlone) {
  for (int n : kSizes) {
    const std::vector<Sums> all = sums_of(n, 2, n, [](at::ScalarType) { return std::vector{Reduction::kSum}; });
    run_ranks(n, [&](World& world) {
      const int me = world.rank();
      for (const Sums& one : all) {
        const int64_t count = one.count;
        for (bool in_place : {false, true}) {
          const Tensor in = one.term(me).clone(), before = in.clone();
          const Tensor out = in_place ? in.narrow(0, me * count, count) : at::empty({count}, one.type);
          world.all().reduce_scatter(out, in).wait();
          require(same_bits(out, one.expected[0].second.narrow(0, me * count, count)),
                  label("reduce_scatter", n, count, one.type));
          if (in_place) before.narrow(0, me * count, count).copy_(out);
          require(same_bits(in, before), label("other parts of reduce_scatter", n, count, one.type));
        }
      }
    });
  }
}

TEST(Communicator, MegabytesGoThroughPiecesAndWindows) {
  constexpr int64_t kCount = 3'000'001;
  const std::vector<Tensor> terms = terms_of_all(3, 3, kCount, at::kFloat);
  const Tensor sum = tree_of(terms, Reduction::kSum);
  run_ranks(3,
            [&](World& world) {
              const auto me = static_cast<size_t>(world.rank());
              const Tensor x = terms[me].clone();
              world.all().all_reduce(x).wait();
              require(same_bits(x, sum), "all_reduce of 12 MB");
              const Tensor y = me == 1 ? terms[1].clone() : at::zeros({kCount});
              world.all().broadcast(y, 1).wait();
              require(same_bits(y, terms[1]), "broadcast of 12 MB");
              const Tensor all = at::empty({3, kCount});
              world.all().all_gather(all, terms[me]).wait();
              for (int r = 0; r < 3; ++r)
                require(same_bits(all[r], terms[static_cast<size_t>(r)]), "all_gather of 12 MB");
            },
            {}, {.delivers = {}, .max_delay_polls = 3});
}

// A member that forwards may learn of its chunks out of order.
TEST(Communicator, MegabytesAreBroadcastThroughMembersThatForwardThem) {
  const Tensor sent = term_of(9, 4, 3'000'001, at::kFloat);
  for (const int n : {4, 7, 8}) {
    for (const int root : {0, 2}) {
      run_ranks(n,
                [&](World& world) {
                  const Tensor x = world.rank() == root ? sent.clone() : at::zeros_like(sent);
                  world.all().broadcast(x, root).wait();
                  require(same_bits(x, sent), fmt::format("broadcast from {} of {}", root, n));
                },
                {}, {.delivers = {}, .max_delay_polls = 3});
    }
  }
}

TEST(Communicator, AllGatherHasEveryPartInPlaceOrNot) {
  for (int n : kSizes) {
    run_ranks(n, [n](World& world) {
      const int me = world.rank();
      for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kByte}) {
        for (int64_t count : kCounts) {
          for (bool in_place : {false, true}) {
            const auto part = [&](int r) { return term_of(r, 6, count, at::kLong).to(type); };
            const Tensor out = at::zeros({n * count}, type);
            const Tensor in = in_place ? out.narrow(0, me * count, count) : part(me);
            if (in_place) in.copy_(part(me));
            world.all().all_gather(out, in).wait();
            for (int r = 0; r < n; ++r) {
              require(same_bits(out.narrow(0, r * count, count), part(r)), label("all_gather", n, count, type));
            }
          }
        }
      }
    });
  }
}

TEST(Communicator, AllToAllIsATransposition) {
  for (int n : kSizes) {
    run_ranks(n, [n](World& world) {
      for (int64_t count : kCounts) {
        const Tensor out = at::zeros({n, count});
        world.all().all_to_all(out, term_of(world.rank(), 8, n * count, at::kFloat)).wait();
        for (int r = 0; r < n; ++r) {
          const Tensor from = term_of(r, 8, n * count, at::kFloat).view({n, count})[world.rank()];
          require(same_bits(out[r], from), label("all_to_all", n, count, at::kFloat));
        }
      }
    });
  }
}

/// Returns the rows from one rank to another: none for many pairs.
int64_t rows_between(int from, int to, int salt) {
  const int draw = (from * 7 + to * 13 + salt * 5) % 11;
  return draw < 5 ? 0 : draw * draw;
}

TEST(Communicator, UnevenAllToAllSendsRowsAndNothingWhereThereAreNone) {
  for (int n : kSizes) {
    for (int salt = 0; salt < 4; ++salt) {
      run_ranks(n, [n, salt](World& world) {
        const int me = world.rank(), width = 3;
        std::vector<int64_t> in_rows, out_rows;
        std::vector<Tensor> sent, expected;
        const auto rows = [&](int from, int to) {
          return at::full({rows_between(from, to, salt), width}, from * 100 + to, at::kInt);
        };
        for (int r = 0; r < n; ++r) {
          in_rows.push_back(rows_between(me, r, salt));
          out_rows.push_back(rows_between(r, me, salt));
          sent.push_back(rows(me, r));
          expected.push_back(rows(r, me));
        }
        const Tensor in = at::cat(sent), all = at::cat(expected), out = at::empty_like(all);
        world.all().reset_traffic();
        world.all().all_to_all(out, in, out_rows, in_rows).wait();
        require(same_bits(out, all), fmt::format("uneven all_to_all over {}", n));
        for (int r = 0; r < n; ++r) {
          const int64_t bytes = r == me ? 0 : in_rows[static_cast<size_t>(r)] * width * 4;
          require(world.all().traffic().bytes_to[static_cast<size_t>(r)] == bytes, "bytes of a pair");
        }
      });
    }
  }
}

TEST(Communicator, BroadcastReachesAllFromEveryRoot) {
  for (int n : kSizes) {
    run_ranks(n, [n](World& world) {
      for (int root = 0; root < n; ++root) {
        const Tensor x = term_of(world.rank(), root, 777, at::kBFloat16).clone();
        world.all().broadcast(x, root).wait();
        require(same_bits(x, term_of(root, root, 777, at::kBFloat16)), fmt::format("broadcast from {} of {}", root, n));
      }
    });
  }
}

TEST(Communicator, SendsAreMatchedInOrderWhateverTheirSizes) {
  run_ranks(4,
            [](World& world) {
              const int next = (world.rank() + 1) % 4, before = (world.rank() + 3) % 4;
              std::vector<Pending> pending;
              std::vector<Tensor> received;
              for (int i = 0; i < 20; ++i) {
                const int64_t count = i % 3 == 0 ? 40'000 : i;
                received.push_back(at::empty({count}));
                pending.push_back(world.all().receive(received.back(), before));
                pending.push_back(world.all().send(term_of(world.rank(), i, count, at::kFloat), next));
              }
              for (Pending& one : pending) one.wait();
              for (int i = 0; i < 20; ++i) {
                const Tensor& x = received[static_cast<size_t>(i)];
                require(same_bits(x, term_of(before, i, x.numel(), at::kFloat)), fmt::format("message {}", i));
              }
            },
            {}, {.delivers = {}, .max_delay_polls = 4});
}

TEST(Communicator, ABarrierEndsWhenTheLastHasCome) {
  for (int n : {2, 3, 5, 8}) {
    std::atomic<int> num_there = 0;
    run_ranks(n, [&](World& world) {
      for (int turn = 1; turn <= 5; ++turn) {
        if (world.rank() == turn % n) std::this_thread::sleep_for(std::chrono::milliseconds(3));
        ++num_there;
        world.all().barrier();
        require(num_there >= turn * n, "a rank has left the barrier early");
      }
    });
  }
}

TEST(Communicator, GroupsThatOverlapDoNotWaitForOneAnotherNorMix) {
  std::vector<std::vector<Tensor>> terms_of_call;
  for (int call = 0; call < 12; ++call)
    terms_of_call.push_back(terms_of_all(6, call, call % 4 == 0 ? 30'000 : 10 + call, at::kFloat));
  for (int seed = 0; seed < 4; ++seed) {
    run_ranks(6,
              [&](World& world) {
                const int me = world.rank();
                const auto rows = world.make_group({{0, 1, 2}, {3, 4, 5}}, "rows");
                const auto columns = world.make_group({{3, 0}, {1, 4}, {2, 5}}, "columns");
                Communicator* groups[] = {rows.get(), columns.get(), &world.all()};
                struct One {
                  Pending pending;
                  Tensor x, expected;
                };
                // Each rank starts the calls of one group in the same order, but takes the groups in a different order.
                std::vector<int> order;
                for (int g = 0; g < 3; ++g) order.insert(order.end(), 12, g);
                std::mt19937 random(static_cast<unsigned>(seed * 10 + me));
                std::shuffle(order.begin(), order.end(), random);
                std::vector<One> all;
                int num_started[3] = {};
                for (int g : order) {
                  Communicator& group = *groups[g];
                  const std::vector<Tensor>& of_all = terms_of_call[static_cast<size_t>(num_started[g]++)];
                  std::vector<Tensor> terms;
                  for (int r : group.options().world_ranks) terms.push_back(of_all[static_cast<size_t>(r)]);
                  One one;
                  one.x = of_all[static_cast<size_t>(me)].clone();
                  one.expected = tree_of(terms, Reduction::kSum);
                  one.pending = group.all_reduce(one.x);
                  all.push_back(one);
                }
                std::shuffle(all.begin(), all.end(), random);
                for (One& one : all) {
                  one.pending.wait();
                  require(same_bits(one.x, one.expected), "an all_reduce among many");
                }
              },
              {}, {.delivers = {}, .max_delay_polls = 5});
  }
}

TEST(Communicator, GoesOnWhileTheCallerComputes) {
  run_ranks(4, [](World& world) {
    const auto begin = std::chrono::steady_clock::now();
    // Each turn has four messages, one after the other. A thread that only looks at intervals if the roll is called
    // would need two minutes.
    for (int turn = 0; turn < 300; ++turn) {
      const Tensor x = at::ones({100});
      const Pending pending = world.all().all_reduce(x);
      while (!pending.done()) {  // without a wait
        require(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60), "it does not continue by itself");
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
      require(x[99].item<float>() == 4, "the sum");
    }
  });
}

TEST(Communicator, APendingMayOutliveItsGroupAndNeedNotBeWaitedFor) {
  run_ranks(3, [](World& world) {
    const Tensor x = at::ones({10'000}), y = at::ones({10'000});
    Pending pending;
    {
      const auto group = world.make_group({{0, 1, 2}}, "short-lived");
      group->all_reduce(y);
      pending = group->all_reduce(x);
    }
    pending.wait();
    require(x[0].item<float>() == 3, "the sum");
    world.all().barrier();
  });
}

TEST(Communicator, AMeanOfHugeTermsIsFinite) {
  for (int n : {2, 3, 8, 12}) {
    run_ranks(n, [](World& world) {
      for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
        for (int64_t count : {10, 20'000}) {
          const double huge = type == at::kHalf ? 65504 : type == at::kDouble ? 1.7e308 : 3.3e38;
          const Tensor x = at::full({count}, huge, type), before = x.clone();
          world.all().all_reduce(x, Reduction::kMean).wait();
          require(x.isfinite().all().item<bool>(), "a mean of finite terms");
          require(at::allclose(x.to(at::kDouble) / huge, before.to(at::kDouble) / huge, 1e-2),
                  "the mean of equal terms");
        }
      }
    });
  }
}

}  // namespace
}  // namespace athanor::comm::communicator_test
