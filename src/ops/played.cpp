#include "ops/played.h"

#include "ops/device/played_device.h"
#include "ops/played_forms.h"

#include <ATen/record_function.h>
#include <c10/core/Allocator.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace athanor::ops {
namespace {

// The memory of one meta tensor, if there were any.
struct PlayedBlock {
  int64_t bytes;
  uint64_t play;          // the number of its Play
  bool is_moved = false;  // another block continues it
};

// A tensor and its memory, to be compared only.
struct Identity {
  const void *tensor, *storage;
};
Identity identity_of(const Tensor& x) { return {x.unsafeGetTensorImpl(), x.storage().unsafeGetStorageImpl()}; }

// An op of libtorch, or a node of the graph, that is running.
struct Running {
  bool is_node = false;
  bool node_ended = false;   // a node that it has called has ended, and no op with gradients has begun since
  bool has_written = false;  // an op that it has called has written something
  double flops = 0;
  int64_t bytes_read = 0;
  c10::SmallVector<Identity, 4> arguments = {};
};

}  // namespace

struct Play::State {
  Recorder& recorder;
  PlayedNumbers numbers;
  PlayedPlace place;
  uint64_t number;
  std::vector<Running> running = {{}};  // from the outermost
  PlayedBlock* continued = nullptr;     // the block that the next one of its size continues
  at::CallbackHandle handle = 0;
};

namespace {

thread_local Play::State* playing = nullptr;

void free_block(void* context) {
  const std::unique_ptr<PlayedBlock> block(static_cast<PlayedBlock*>(context));
  if (playing && playing->number == block->play && !block->is_moved) playing->recorder.freed(block->bytes);
}

// Memory that does not exist: the address is null, and the context is a PlayedBlock, if a Play sees it.
class PlayedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    const c10::Device meta(c10::DeviceType::Meta);
    const auto bytes = static_cast<int64_t>(size);
    if (!playing || bytes == 0) return {nullptr, nullptr, &free_block, meta};
    auto block = std::make_unique<PlayedBlock>(PlayedBlock{bytes, playing->number});
    if (playing->continued && playing->continued->bytes == bytes) {
      std::exchange(playing->continued, nullptr)->is_moved = true;
    } else {
      playing->recorder.allocated(bytes);
    }
    return {nullptr, block.release(), &free_block, meta};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) const override {}
};

void install_allocator() {
  static PlayedAllocator* const allocator = [] {
    auto* made = new PlayedAllocator;  // libtorch keeps the pointer, and tensors may outlive main
    c10::SetAllocator(c10::DeviceType::Meta, made, /*priority=*/1);
    return made;
  }();
  ATHANOR_ASSERT(c10::GetAllocator(c10::DeviceType::Meta) == allocator);
}

// The call of an op has a handle of each argument, beside the caller's.
constexpr size_t kHandlesOfCall = 2;

// Returns the block of a tensor that only the graph's engine holds; else null.
PlayedBlock* block_of_engine(const at::IValue& value) {
  if (!value.isTensor()) return nullptr;
  const Tensor& x = value.toTensor();
  const bool is_own = x.is_meta() && x.has_storage() && x.use_count() <= kHandlesOfCall &&
                      x.storage().use_count() == 1 && x.is_non_overlapping_and_dense();
  return is_own ? static_cast<PlayedBlock*>(x.storage().data_ptr().get_context()) : nullptr;
}

// The engine adds up the gradients of a tensor that has several readers. On the host it adds into one of them, if
// nothing else holds that; of meta tensors it makes a third one. Its sums follow a node's end, without gradients.
void find_continued(const at::RecordFunction& op) {
  if (std::strcmp(op.name(), "aten::add") != 0 || op.inputs().size() < 2) return;
  playing->continued = block_of_engine(op.inputs()[0]);
  if (!playing->continued) playing->continued = block_of_engine(op.inputs()[1]);
}

// Calls f(tensor) for the meta tensors among values.
template <class Values, class F>
void for_meta(const Values& values, F f) {
  for (const at::IValue& value : values) {
    if (value.isTensor() && value.toTensor().is_meta()) f(value.toTensor());
    if (!value.isTensorList()) continue;
    for (const Tensor& x : value.toTensorVector())
      if (x.is_meta()) f(x);
  }
}

// Returns the multiplications and additions of a product of libtorch, by its last two operands.
double flops_of(const at::RecordFunction& op) {
  constexpr const char* kProducts[] = {"aten::mm", "aten::bmm", "aten::_grouped_mm", "aten::addmm_", "aten::addmm"};
  const auto* const found =
      std::ranges::find_if(kProducts, [&](const char* each) { return !std::strcmp(op.name(), each); });
  if (found == std::end(kProducts)) return 0;
  const size_t first = found - kProducts < 3 ? 0 : 1;
  const Tensor &a = op.inputs()[first].toTensor(), &b = op.inputs()[first + 1].toTensor();
  return 2.0 * static_cast<double>(a.numel()) * static_cast<double>(b.size(-1));
}

std::unique_ptr<at::ObserverContext> begin_op(const at::RecordFunction& op) {
  if (!playing) return nullptr;
  Running& caller = playing->running.back();
  Running called{op.scope() == at::RecordScope::BACKWARD_FUNCTION};
  if (!called.is_node) {
    if (at::GradMode::is_enabled()) caller.node_ended = false;
    if (caller.node_ended) find_continued(op);
    called.flops = flops_of(op);
    for_meta(op.inputs(), [&](const Tensor& x) {
      called.bytes_read += static_cast<int64_t>(x.nbytes());
      called.arguments.push_back(identity_of(x));
    });
  }
  playing->running.push_back(std::move(called));
  return nullptr;
}

// Returns the bytes of the results that an op has written. A result that is not an argument, and has the memory of one,
// is a view.
int64_t bytes_written(const at::RecordFunction& op, const Running& running) {
  int64_t bytes = 0;
  for_meta(op.outputs(), [&](const Tensor& y) {
    const Identity result = identity_of(y);
    const auto has = [&](const void* Identity::*what) {
      return std::ranges::any_of(running.arguments, [&](const Identity& x) { return x.*what == result.*what; });
    };
    if (has(&Identity::tensor) || !has(&Identity::storage)) bytes += static_cast<int64_t>(y.nbytes());
  });
  return bytes;
}

// An op without arguments makes memory that has no values yet; one that has called others has done no work itself.
void end_op(const at::RecordFunction& op, at::ObserverContext* /*context*/) {
  if (!playing) return;
  const Running ended = std::move(playing->running.back());
  playing->running.pop_back();
  Running& caller = playing->running.back();
  playing->continued = nullptr;
  if (ended.is_node) {
    caller.node_ended = true;
    return;
  }
  const int64_t written = ended.has_written || ended.arguments.empty() ? 0 : bytes_written(op, ended);
  if (written > 0) playing->recorder.computed({op.name(), ended.flops, ended.bytes_read, written});
  caller.has_written |= ended.has_written || written > 0;
}

int64_t bytes_of(Tensors tensors) {
  int64_t bytes = 0;
  for (const Tensor& x : tensors)
    if (x.defined()) bytes += static_cast<int64_t>(x.nbytes());
  return bytes;
}

}  // namespace

Play::Play(Recorder& recorder, PlayedNumbers numbers, PlayedPlace place) {
  ATHANOR_ASSERT(!playing);
  static std::atomic<uint64_t> count{0};
  install_allocator();
  install_played_forms();
  device::install_played_device();
  state_ = std::make_unique<State>(State{recorder, std::move(numbers), place, ++count});
  state_->handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback(begin_op, end_op)
                                     .needsInputs(true)
                                     .needsOutputs(true)
                                     .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  playing = state_.get();
}

Play::~Play() {
  playing = nullptr;
  at::removeCallback(state_->handle);
}

PlayedPlace played_place() { return playing ? playing->place : PlayedPlace::kHost; }

bool plays_device() { return is_device(played_place()); }

int num_threads() {
  return played_place() == PlayedPlace::kPlannedHost ? playing->numbers.threads : at::get_num_threads();
}

const PlayedNumbers& played_numbers() {
  ATHANOR_CHECK_AS(Error, playing, "bug: a meta tensor is computed with, and no step is played");
  return playing->numbers;
}

void report(const Op& op) {
  if (playing) playing->recorder.computed(op);
}

void report(const char* name, Tensors read, Tensors written, double flops) {
  if (playing) playing->recorder.computed({name, flops, bytes_of(read), bytes_of(written)});
}

}  // namespace athanor::ops
