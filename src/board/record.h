#pragma once
// The layout of a node's board in shared memory: a header, and a record for each rank of the node (docs/board.md).
//
// A rank writes its record by plain stores: no lock, no system call. A reader in another process sees consistent values
// through the sequence number of LiveState, which is odd while they change. All of it is little-endian memory of one
// node, and is never copied to another; what leaves the node is text (node_report.h).

#include <atomic>
#include <cstdint>

namespace athanor::board {

inline constexpr char kMagic[8] = {'A', 'T', 'H', 'B', 'O', 'A', 'R', 'D'};
inline constexpr uint32_t kFormat = 1;
inline constexpr uint32_t kNumSlots = 512;  ///< more ranks than this on one node have no record
inline constexpr uint32_t kMaxGroups = 32;  ///< more groups than this of one rank are not shown
inline constexpr uint32_t kHeaderBytes = 4096;

/// Written once, under the lock of the file, before a record exists.
struct Header {
  char magic[8];
  uint32_t format, header_bytes, record_bytes, num_slots;
  char run[40];        ///< hash of the run's folder (place.h)
  char node[256];      ///< name of the node
  char run_dir[3072];  ///< absolute path of the run's folder
};
static_assert(sizeof(Header) <= kHeaderBytes);

/// The life of a record. A killed process leaves kLive: readers compare the process (process_state.h).
enum class SlotState : uint32_t { kFree, kLive, kEnded };

/// Written when a rank takes the slot; only `attempt` comes later, since the checks of a start precede it.
struct alignas(64) Identity {
  std::atomic<SlotState> state;
  int32_t process;
  uint64_t process_start;        ///< field 22 of /proc/PID/stat, since numbers of processes are used again
  int32_t rank, job_ranks;       ///< as the launcher numbers them
  std::atomic<int64_t> attempt;  ///< number of this start of the run; 0 until its checks have passed
  int64_t opened_ns;             ///< CLOCK_MONOTONIC, as all times of the board
};

/// What changes in every step: one cache line. Only the thread that trains writes it.
struct alignas(64) LiveState {
  std::atomic<uint32_t> sequence;  ///< odd while the other members change
  std::atomic<uint32_t> phase;
  std::atomic<int64_t> step;         ///< number of the present update, from 1; 0 before the first
  std::atomic<int64_t> phase_ns;     ///< when the phase began
  std::atomic<int64_t> changed_ns;   ///< when anything here changed last
  std::atomic<int64_t> wait_number;  ///< number in its group of the call that the rank waits for, from 0
  std::atomic<int32_t> microbatch;   ///< from 0; −1 outside of forward and backward
  std::atomic<int32_t> wait_group;   ///< index of that call's group among `groups`; −1: the rank waits for no call
  std::atomic<int32_t> wait_kind;    ///< athanor::Collective
  std::atomic<int32_t> wait_peer;    ///< the other rank of a message, by its number in the job; −1 for a collective
};
static_assert(sizeof(LiveState) == 64 && std::atomic<int64_t>::is_always_lock_free);

/// A group of ranks. Equal identities on two ranks mean the same group, wherever they stand in the table.
struct GroupName {
  std::atomic<uint64_t> identity;  ///< 0: no group
  int32_t size;
  char name[20];
};

struct alignas(64) Record {
  Identity identity;
  LiveState live;
  std::atomic<int64_t> started[kMaxGroups];  ///< number of collectives of each group that the rank has started
  GroupName groups[kMaxGroups];
};
static_assert(sizeof(Record) % 64 == 0);

constexpr uint64_t kBoardBytes = kHeaderBytes + uint64_t{kNumSlots} * sizeof(Record);

}  // namespace athanor::board
