#pragma once
// Sends whole files from rank to rank.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/team.h"
#include "comm/communicator.h"
#include "parallel/share.h"

namespace athanor::inline saves {

struct OutgoingFiles {
  int to = 0;                    ///< rank of the group
  std::filesystem::path folder;  ///< that they are in
  std::vector<std::string> names;
};
struct IncomingFiles {
  int from = 0;                  ///< rank of the group
  std::filesystem::path folder;  ///< that they are written into, each whole or absent, and synced
};

/// Sends files and receives others at the same time, in blocks of 4 MiB. The receivers learn the names from the sender.
/// Every rank that is named must make a call that names this one, so that nothing is left unreceived whatever fails.
/// @param worked  called with the bytes that were sent or received.
/// @throws IoError for a file that could not be read or written, on the rank where that happened; and CheckpointError
/// on a rank that received from one that could not send, or a name that is no plain file name. Both at the end.
void exchange_files(comm::Communicator& group, const std::optional<OutgoingFiles>& out,
                    const std::vector<IncomingFiles>& in, const std::function<void(comm::Pending& pending)>& wait,
                    const Worked& worked = {});

}  // namespace athanor::inline saves
