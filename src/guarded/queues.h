#pragma once
// The streams of a device that the host plays in tests. Work is queued by stream, and runs on the host when something
// waits for it, in an order that is drawn among those that the streams and their events allow. A wait that is missing
// in a program then gives other results, in some order if not in each.

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace athanor::guarded {

/// Which of the legal orders is played.
struct Order {
  enum class Kind {
    kEarliest,  ///< each piece of work runs as soon as it may: when it is submitted
    kLatest,    ///< a wait runs only what it needs, as long as no other rank waits for more
    kDrawn      ///< between the two, drawn from the seed
  };
  Kind kind = Kind::kEarliest;
  uint64_t seed = 0;
};

/// Any number of threads may use one object. Work runs under its lock: it must not submit work.
///
/// Work may have to wait for other ranks, whose devices have other queues. All streams of a real device advance
/// by themselves, so a wait that cannot continue runs what it can of the other streams; and if nothing is submitted to
/// a device for some milliseconds while it has such work, a thread runs what it can.
class Queues {
 public:
  using StreamId = int64_t;  ///< 0 is the default stream
  using Work = std::function<void()>;

  /// A point in a stream: it is reached when everything that was submitted before it is done.
  struct Point {
    bool reached = false;
    StreamId stream = 0;
    int64_t position = 0;      ///< number of pieces of work in the stream up to it
    bool is_recorded = false;  ///< it was recorded by begin_capture, and is never reached
    int64_t num_queries = 0;   ///< calls of `query` before it was reached
    Queues* owner = nullptr;
    int64_t number = 0;  ///< in the order in which the points of all devices were reached
    double time_ms = 0;  ///< when it was reached, if the queues keep time
  };
  using Event = std::shared_ptr<Point>;

  /// Returns a stream that nothing has used.
  StreamId new_stream();

  /// Everything that was submitted before runs first.
  void set_order(const Order& order);

  /// From now on each launch takes so long in the time of its stream, which is 0; 0 (at first): no time is kept. A
  /// stream that waits for an event continues at its time if that is later. So times follow from what was submitted,
  /// and not from a clock or the order that is played.
  void keep_time(double ms_of_launch);
  bool keeps_time() const;
  /// Return the time of a stream as far as its work has run, and set it on to a later one, for work that has to meet
  /// other devices.
  double time_ms(StreamId stream);
  void advance_to(StreamId stream, double time_ms);
  /// What an event tells of two points: the time between them, or, if no time is kept, how many points of all devices
  /// were reached from the first to the second.
  static double between(const Event& from, const Event& to);

  /// Queues work. What it throws appears at the wait that runs it.
  void submit(StreamId stream, const char* name, Work work);
  /// The same for what a real device would not do: it is not counted.
  /// @param recorded  false: it is queued although the stream is captured.
  void submit_uncounted(StreamId stream, const char* name, Work work, bool recorded = true);
  /// Queues a point of the stream that is passed once `ready` returns true. Uncounted.
  void submit_when(StreamId stream, const char* name, std::function<bool()> ready);
  /// Queues a point.
  Event record(StreamId stream);
  /// Lets later work of the stream wait for a point. The host does not wait.
  void block(StreamId stream, const Event& event);

  /// Returns whether the point has been reached. In a drawn order the device may work first; from the second query on
  /// it runs what the point needs, as far as other ranks let it.
  bool query(const Event& event);
  bool query(StreamId stream);
  /// The same for what a real device would not do: nothing is run or counted.
  bool is_reached(const Event& event) const;
  /// The host waits.
  void synchronize(const Event& event);
  void synchronize(StreamId stream);
  void synchronize_all();

  /// The number of pieces of work that were submitted, and of waits of the host, since the program began.
  struct Counts {
    int64_t launches = 0, waits = 0;
  };
  Counts counts() const;

  /// From begin_capture on, what is submitted to the stream is recorded and does not run; end_capture returns it. In
  /// between, a wait of the host throws, and so does a wait of the stream for what was not recorded.
  using Recording = std::vector<std::pair<std::string, Work>>;
  void begin_capture(StreamId stream);
  Recording end_capture();
  bool is_captured(StreamId stream) const;
  /// Queues recorded work, which counts as one launch.
  void replay(StreamId stream, const Recording& recording);

  /// For tests that remove synchronisation: the `index`-th call of `block` or of a wait for an event (from 0, in the
  /// order of the calls) does nothing. Returns how many calls there were since the last call of `skip`.
  int64_t skip(int64_t index);
  /// The same for the host alone: its `index`-th wait for an event from now on (from 0) does nothing; −1: none.
  void skip_host_wait(int64_t index);

  /// Drops everything that is queued, of a device whose other ranks will not come.
  void forget_all();
  /// The same, and later waits throw, until set_order is called.
  void abandon();
  /// Runs everything of a stream. Uncounted. Returns false if other ranks let it wait for longer than this.
  bool run_out(StreamId stream, std::chrono::milliseconds patience);

  /// Runs what can be run if work waits for other ranks and nothing was submitted lately. For the thread that stands
  /// for the device. What the work throws appears at the next wait.
  void advance_if_idle();

 private:
  struct Task {
    std::string name;
    Work work;
    Event waits_for, reaches;
    std::function<bool()> ready;  // null: always
    bool is_launch = false;
  };
  struct Stream {
    std::deque<Task> tasks;
    int64_t submitted = 0, done = 0;
    double time_ms = 0;
  };

  Stream& stream(StreamId id);
  void add(StreamId id, Task task);
  bool can_run(const Stream& stream) const;
  void run_first(StreamId id);
  template <class Visit>
  void for_each_busy(const Visit& visit);
  bool try_run_to(StreamId id, int64_t position);
  bool run_to(StreamId id, int64_t position, std::chrono::milliseconds patience);
  void run_to(StreamId id, int64_t position);
  bool run_what_can();
  void run_all();
  void wander(int64_t most_tasks);
  void after_submit();
  void wait_until(StreamId id, int64_t position);
  bool is_skipped();
  void refuse_while_capturing(const char* what) const;
  void refuse_if_abandoned() const;

  mutable std::recursive_mutex mutex_;  // guards all members below
  std::deque<Stream> streams_;
  std::set<StreamId> busy_;  // the streams that have tasks
  Order order_;
  std::mt19937_64 random_;
  Counts counts_;
  double ms_of_launch_ = 0;
  int64_t skipped_ = -1, synchronisations_ = 0;
  int64_t host_waits_to_skipped_ = -1;  // below 0: none is skipped
  StreamId last_stream_ = 0;
  int64_t num_unready_ = 0;  // tasks with `ready`
  std::chrono::steady_clock::time_point last_submit_;
  std::exception_ptr failure_;  // what work has thrown that advance_if_idle ran
  bool abandoned_ = false;
  StreamId captured_ = -1;  // none
  Recording recording_;
};

}  // namespace athanor::guarded
