#pragma once
// Worlds made of another one: with something around the backends of its groups, or with other numbers of its ranks.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <memory>

#include "comm/world.h"

namespace athanor::comm {

/// Returns the backend that a group of several ranks has instead of `backend`; may return that one.
using WrapGroup = std::function<c10::intrusive_ptr<c10d::Backend>(const GroupOptions& options,
                                                                  c10::intrusive_ptr<c10d::Backend> backend)>;

/// Returns a world whose groups of make_group() are wrapped, which may change what they compute; World::all() stays as
/// it is. `world` must outlive it.
std::unique_ptr<World> decorated_world(World& world, WrapGroup wrap);

/// A world whose ranks have other numbers, so that each process does what another did before.
class RenumberedWorld : public World {
 public:
  /// Rank r of this world is rank (r + shift) mod size of `base`, which must outlive it. Collective.
  RenumberedWorld(World& base, int shift);

  int rank() const override { return number_of(base_.rank()); }
  int size() const override { return base_.size(); }
  const std::vector<std::string>& hosts() const override { return hosts_; }
  const std::vector<int>& supernodes() const override { return supernodes_; }
  const std::string& network() const override { return base_.network(); }
  Communicator& all() override { return *all_; }
  std::unique_ptr<Communicator> make_group(const std::vector<std::vector<int>>& partition, const std::string& name,
                                           c10::Device device = c10::kCPU, SumTerms tree_sums = nullptr) override;
  void note_work(int64_t amount) override { base_.note_work(amount); }
  [[noreturn]] void abort(int exit_code) override;

  /// Returns the number in `base` of a rank of this world, and the reverse.
  int base_rank(int rank) const { return (rank + shift_) % size(); }
  int number_of(int base_rank) const { return (base_rank - shift_ + size()) % size(); }

 private:
  World& base_;
  int shift_;
  std::vector<std::string> hosts_;
  std::vector<int> supernodes_;
  std::unique_ptr<Communicator> all_;
};

}  // namespace athanor::comm
