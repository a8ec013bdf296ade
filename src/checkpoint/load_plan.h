#pragma once
// Which pieces of a checkpoint hold the elements of a load's targets, and which member of a team hashes which piece.
// All of it follows from the manifest; no file is read.
//
// A hash needs the whole piece. So a piece is read once if the member that needs it whole also hashes it. Each member
// claims the pieces that it needs, and the largest claim wins: whole pieces come first, then parts. Members that need
// equally much are put in an order that differs from piece to piece, so that no member hashes more than its share.
// Pieces that no member needs are shared by bytes. The claims are 8 bytes for each piece, whatever the number of
// members is: 8 MB for the million pieces of a run on 12,288 ranks.

#include <cstdint>
#include <vector>

#include "checkpoint/manifest.h"

namespace athanor::inline checkpoint {

/// What the targets of one member need, in the order of the pieces.
struct LoadPlan {
  struct Use {
    size_t piece, target;  ///< numbers in the manifest and in the list of targets
    int64_t first, end;    ///< range of the piece's elements in which those of the target lie
    int64_t count;         ///< how many of them are the target's
  };
  std::vector<Use> uses;
};

/// Returns the claims of one member, for each piece; 0 is none. Afterwards each claim is replaced by the largest of all
/// members.
/// @param member, members  number of this member, from 0, and number of members: at most a million.
std::vector<int64_t> claims_of(const LoadPlan& plan, const std::vector<Piece>& pieces, int member, int members);

/// Returns for each piece whether `member` hashes it. Over all members each piece is hashed once.
/// @param claims  the largest of all members, for each piece.
std::vector<bool> pieces_to_hash(const std::vector<int64_t>& claims, const std::vector<Piece>& pieces, int member,
                                 int members);

/// Gives pieces that are visited in order to the members: neighbouring pieces, so that each member opens few files, of
/// about as many bytes as the others have.
class ByteShares {
 public:
  ByteShares(uint64_t all_bytes, int members) : all_bytes_(all_bytes), members_(members) {}
  /// Returns the member that has the next piece. A piece without bytes has one, too.
  int owner_of_next(uint64_t num_bytes);

 private:
  uint64_t all_bytes_, before_ = 0;
  int members_;
};

}  // namespace athanor::inline checkpoint
