#include "comm/decorated_world.h"

#include <cstdlib>

#include "comm/group_backend.h"

namespace athanor::comm {
namespace {

class DecoratedWorld : public World {
 public:
  DecoratedWorld(World& world, WrapGroup wrap) : world_(world), wrap_(std::move(wrap)) {}

  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  const std::vector<std::string>& hosts() const override { return world_.hosts(); }
  const std::vector<int>& supernodes() const override { return world_.supernodes(); }
  const std::string& network() const override { return world_.network(); }
  Communicator& all() override { return world_.all(); }
  void note_work(int64_t amount) override { world_.note_work(amount); }
  [[noreturn]] void abort(int exit_code) override {
    world_.abort(exit_code);
    std::abort();  // the compiler does not know that the virtual function never returns
  }

  std::unique_ptr<Communicator> make_group(const std::vector<std::vector<int>>& partition, const std::string& name,
                                           at::Device device, SumTerms tree_sums) override {
    std::shared_ptr<Communicator> group = world_.make_group(partition, name, device, tree_sums);
    GroupOptions options = group->options();
    if (!device.is_cpu()) options.check = false;  // the group itself checks its calls, over one of the hosts
    const int rank = group->rank();
    c10::intrusive_ptr<c10d::Backend> backend;
    if (group->size() > 1) backend = wrap_(options, c10::make_intrusive<GroupBackend>(std::move(group)));
    return std::make_unique<Communicator>(options, std::move(backend), rank);
  }

 private:
  World& world_;
  WrapGroup wrap_;
};

}  // namespace

std::unique_ptr<World> decorated_world(World& world, WrapGroup wrap) {
  return std::make_unique<DecoratedWorld>(world, std::move(wrap));
}

}  // namespace athanor::comm
