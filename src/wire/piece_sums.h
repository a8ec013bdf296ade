#pragma once
// A phase in which each of some members receives the terms of its sums from the others, piece after piece, and adds
// them while the next pieces arrive. The flat reduce-scatter is one such phase, the one of two levels is two.

#include <cstdint>
#include <memory>
#include <vector>

#include "wire/operation.h"

namespace athanor::comm {

/// Pieces are small enough for the cache to hold all terms of one, and large enough for the network. The terms that
/// wait to be added stay within kPieceBuffer up to 2,048 terms of a sum; beyond that, within 16 KiB for each term
/// (192 MiB for 12,288), and always within the size of the tensor.
inline constexpr int64_t kPieceBytes = 512 << 10, kSmallestPiece = 4 << 10, kPieceBuffer = 32 << 20;
inline constexpr int64_t kPieceSlots = 4;  ///< pieces that may arrive while one is added

/// Returns the elements of a piece, if `terms` terms of `width` bytes are received for each element.
int64_t piece_elements(int64_t terms, int64_t width);

/// What is sent and added. The pieces have one order on all members that take part.
class PieceSums {
 public:
  virtual ~PieceSums() = default;

  struct Bytes {
    const char* data;
    int64_t size;  ///< 0: nothing is sent
  };
  std::vector<int> members;  ///< that take part: their indices in the group, in an order common to all of them
  int me = 0;                ///< this member's index in that list
  int64_t num_pieces = 0;

  /// Returns the terms that member `to` of the list needs of `piece`.
  virtual Bytes outgoing(int to, int64_t piece) const = 0;
  /// Returns the number of bytes that come from member `from` of the list for `piece`; 0: nothing comes.
  virtual int64_t incoming(int from, int64_t piece) const = 0;
  /// Returns no less than incoming(from, piece) of any piece.
  virtual int64_t most_incoming(int from) const = 0;
  /// Adds what came; received[i] is from member i of the list, and null for this one.
  virtual void add(int64_t piece, const std::vector<const char*>& received) = 0;
  /// Bytes that it holds in addition to those that wait to be added.
  virtual int64_t held_bytes() const { return 0; }
};

/// Members order their messages by piece, and then by the distance between the two in the list. So the first of all
/// incomplete messages has been posted at both ends: it cannot hang.
std::unique_ptr<Phase> run_piece_sums(std::unique_ptr<PieceSums> sums);

}  // namespace athanor::comm
