#include "board/board.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/launched.h"
#include "base/own_folder.h"
#include "base/process.h"
#include "board/collector.h"
#include "board/locked_file.h"
#include "board/own_stack.h"
#include "board/process_state.h"

namespace athanor::board {
namespace fs = std::filesystem;
namespace {

void copy_text(const std::string& text, char* to, size_t room) {
  std::memset(to, 0, room);
  text.copy(to, room - 1);
}

bool is_board(const Header& header) {
  return std::memcmp(header.magic, kMagic, sizeof(kMagic)) == 0 && header.format == kFormat &&
         header.header_bytes == kHeaderBytes && header.record_bytes == sizeof(Record) && header.num_slots == kNumSlots;
}

Header header_of(const BoardOptions& options) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.format = kFormat;
  header.header_bytes = kHeaderBytes;
  header.record_bytes = sizeof(Record);
  header.num_slots = kNumSlots;
  copy_text(options.place.run, header.run, sizeof(header.run));
  copy_text(options.node, header.node, sizeof(header.node));
  copy_text(absolute_path(options.run_dir).string(), header.run_dir, sizeof(header.run_dir));
  return header;
}

bool is_free(const Identity& identity) {
  const SlotState state = identity.state.load(std::memory_order_acquire);
  return state != SlotState::kLive || state_of_process(identity.process, identity.process_start) == ProcessState::kGone;
}

void take(Record& record, const BoardOptions& options) {
  Identity& identity = record.identity;
  identity.state = SlotState::kFree;
  identity.process = ::getpid();
  identity.process_start = start_of_process(::getpid());
  identity.rank = options.rank;
  identity.job_ranks = options.job_ranks;
  identity.attempt = 0;
  identity.opened_ns = clock_ns();
  record.live.sequence = 0;
  record.live.step = 0;
  record.live.wait_group = -1;
  for (GroupName& group : record.groups) group.identity = 0;
  Publisher(&record).set_phase(Phase::kStart);
  identity.state.store(SlotState::kLive, std::memory_order_release);
}

// Other programs that train, as those of tests do, use the one in the folder of the library.
fs::path own_program() {
  const fs::path running = running_program(), beside = own_folder() / "athanor";
  if (running.filename() == "athanor") return running;
  return ::access(beside.c_str(), X_OK) == 0 ? beside : fs::path();
}

// Where Yama lets processes be traced by their parents only, the collector and its children may read this one.
void admit_reader(pid_t collector) {
#ifdef PR_SET_PTRACER
  if (collector > 0) ::prctl(PR_SET_PTRACER, collector, 0, 0, 0);  // fails without Yama, where nothing is needed
#endif
}

}  // namespace

SharedMemory::SharedMemory(int file, const fs::path& path, const Header* header) {
  struct stat found {};
  if (::fstat(file, &found) != 0) fail_errno("cannot look at", path.string());
  if (found.st_uid != ::geteuid() && ::geteuid() != 0)
    fail<Error>("{} belongs to another user (number {}), who has to remove it", path.string(), found.st_uid);
  if (!header && static_cast<uint64_t>(found.st_size) < kBoardBytes) fail<Error>("{} is no board", path.string());
  // The memory is reserved now: a store into a page that a full file system cannot give would be a SIGBUS.
  if (const int why = header ? ::posix_fallocate(file, 0, static_cast<off_t>(kBoardBytes)) : 0) {
    if (found.st_size == 0) ::unlink(path.c_str());  // made for this board; who waits for its lock makes another one
    errno = why;
    fail_errno("cannot reserve the memory of", path.string());
  }
  base_ = ::mmap(nullptr, kBoardBytes, header ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file, 0);
  if (base_ == MAP_FAILED) {
    base_ = nullptr;
    fail_errno("cannot map", path.string());
  }
  if (header && !is_board(this->header())) {
    std::memset(base_, 0, kBoardBytes);  // records of another format mean nothing here
    std::memcpy(base_, header, sizeof(Header));
  }
  if (!is_board(this->header())) {
    ::munmap(base_, kBoardBytes);
    fail<Error>("{} is no board of format {}: its run was started by another version", path.string(), kFormat);
  }
}

SharedMemory::~SharedMemory() { ::munmap(base_, kBoardBytes); }

Record& SharedMemory::record(uint32_t slot) const {
  ATHANOR_ASSERT(slot < kNumSlots);
  return reinterpret_cast<Record*>(static_cast<char*>(base_) + kHeaderBytes)[slot];
}

Board::Board(const BoardOptions& options) {
  const LockedFile file = LockedFile::make(options.place.memory);
  const Header header = header_of(options);
  memory_ = std::make_unique<SharedMemory>(file.descriptor(), options.place.memory, &header);
  uint32_t slot = 0;
  while (slot < kNumSlots && !is_free(memory_->record(slot).identity)) ++slot;
  if (slot == kNumSlots) fail<Error>("all {} records of {} are taken", kNumSlots, options.place.memory.string());
  take(memory_->record(slot), options);
  record_ = &memory_->record(slot);
  if (!options.program.empty()) start_collector(options.program, options.place);
}

Board::~Board() {
  if (record_) record_->identity.state.store(SlotState::kEnded, std::memory_order_release);
}

OpenedBoard open_board(const fs::path& run_dir, int rank, int job_ranks) {
  try {
    const fs::path folder = board_folder();
    if (folder.empty()) return {};
    const std::string node = host_name();
    BoardOptions options{place_of(folder, run_dir, node, ::geteuid()), run_dir, node, rank, job_ranks};
    options.program = own_program();
    auto board = std::make_unique<Board>(options);
    write_own_stack_when_asked(options.place.memory);
    admit_reader(read_collector(options.place));
    return {std::move(board), ""};
  } catch (const std::exception& error) {
    return {nullptr, fmt::format("`athanor status` will not show this node: {}", error.what())};
  }
}

}  // namespace athanor::board
