#pragma once
// The board of this node, opened by a rank: the file in shared memory, and the rank's record in it.

#include <filesystem>
#include <memory>
#include <string>

#include "board/place.h"
#include "board/publisher.h"

namespace athanor::board {

/// The mapped file. A reader only maps it; a rank makes it if it is not there.
class SharedMemory {
 public:
  /// Maps the board. @throws IoError if it cannot be made or used: the folder is missing, full or read-only, or the
  /// file belongs to another user.
  /// @param file  open, and locked by the caller if `header` is given.
  /// @param header  makes the board if the file is not one yet; null: it has to be one.
  SharedMemory(int file, const std::filesystem::path& path, const Header* header);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  const Header& header() const { return *static_cast<const Header*>(base_); }
  Record& record(uint32_t slot) const;

 private:
  void* base_ = nullptr;
};

struct BoardOptions {
  Place place;
  std::filesystem::path run_dir;
  std::string node;
  int rank = 0, job_ranks = 1;
  /// The program `athanor`, which becomes the node's collector if it has none (collector.h); empty: none is started.
  std::filesystem::path program = {};
};

/// A rank's record. It is taken at the start, before the rank communicates, and marked as ended by the destructor; a
/// process that is killed leaves it as it is.
class Board {
 public:
  /// Takes a free record of the node's board, and starts the collector. Holds the lock of the file for as long, against
  /// other ranks that start and a collector that ends.
  /// @throws IoError as SharedMemory; Error if every record is taken, or if the collector does not start.
  explicit Board(const BoardOptions& options);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  Publisher publisher() const { return Publisher(record_); }

 private:
  std::unique_ptr<SharedMemory> memory_;
  Record* record_ = nullptr;
};

struct OpenedBoard {
  std::unique_ptr<Board> board;  ///< null: there is none
  std::string warning;           ///< why there is none; empty if it was turned off
  Publisher publisher() const { return board ? board->publisher() : Publisher(); }
};
/// Opens the board of the run on this node for a rank of `athanor train`. A run never fails for its board.
OpenedBoard open_board(const std::filesystem::path& run_dir, int rank, int job_ranks);

}  // namespace athanor::board
