#pragma once
// Writes full checkpoints while the run continues.
//
// A checkpoint is copied into a pool of memory (StagingPool). A thread of this process then hashes and writes the copy,
// and commits it together with the threads of the other ranks, over a group that only they use. So the run's own
// collectives, their timeouts and its other threads do not depend on the disk: a disk may stall for as long as it does.
// One checkpoint is written at a time.

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "base/span_log.h"
#include "saves/local_save.h"
#include "train/train_state.h"

namespace athanor::inline saves {

/// Where a checkpoint is written.
enum class SaveTo {
  kRunFolder,
  kNodes,  ///< a local checkpoint (local_save.h)
};

/// A checkpoint that was written, or not.
struct SaveOutcome {
  SaveTo to = SaveTo::kRunFolder;
  int64_t step = 0;
  double copy_s = 0;           ///< the time for which the run was stopped
  double seconds = 0;          ///< from the beginning of the copy until the checkpoint was on disk
  uint64_t num_bytes = 0;      ///< what this rank wrote
  std::exception_ptr failure;  ///< the same error on all ranks, or null
};

class BackgroundSave {
 public:
  /// Called on the first rank, by its thread, when a checkpoint is in the run's folder.
  using Tell = std::function<void(const SaveOutcome&)>;

  /// Takes the memory for a copy of this state. Collective over the state's world.
  /// @param local  where local checkpoints are written; none: there are none.
  BackgroundSave(const TrainState& state, Tell tell, std::optional<LocalPlace> local = {});
  /// Waits for what is being written, unless an exception is on its way: then it is given up.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  /// Starts a checkpoint of the state as it is now. When it returns, the state may change; on a device only after
  /// before_update(). None may be pending. Collective: all ranks call it at the same step; it waits for none of them.
  void start(TrainState& state, SaveTo to = SaveTo::kRunFolder);
  /// Returns whether a checkpoint was started whose outcome was not taken.
  bool pending() const { return pending_.has_value(); }
  bool pending(SaveTo to) const { return pending_ == to; }
  /// Returns whether this rank's thread is still writing.
  bool is_writing() const;
  /// Waits for the pending checkpoint, and returns its outcome. No rank gets it before all ranks have finished writing.
  /// So there is no wait if the ranks agree that they have finished, and then all call this at the same step.
  SaveOutcome take();
  /// Waits until take() would return at once. The ranks tell each other, again and again, that they still wait: a disk
  /// may stall for as long as it does, but a rank that is stopped or hangs is missing in such a call. Collective over
  /// `world`, the state's; in the threads that train.
  /// @throws CommError naming that rank, after the group's limit of time.
  void wait_together(comm::Communicator& world);
  /// To be called before the state changes: on a device, the current stream waits until it is copied.
  void before_update() const;

  int64_t pool_bytes() const;
  /// Makes the thread log when it writes; null: no more.
  void record_spans(std::shared_ptr<SpanLog> spans);

 private:
  struct Worker;

  std::shared_ptr<Worker> worker_;
  std::thread thread_;
  std::optional<SaveTo> pending_;
};

}  // namespace athanor::inline saves
