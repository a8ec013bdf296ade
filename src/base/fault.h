#pragma once
// Named places where a test may make the program fail. Inert unless ATHANOR_FAULT arms them.
//
// ATHANOR_FAULT="checkpoint.piece:kill@3,files.write:enospc@1+" means: the third time `checkpoint.piece` is passed
// the process kills itself (SIGKILL); every `files.write` from the first on answers ENOSPC.
// Actions: kill, term, int (signals to this process), enospc, eio (for fault_errno only), plant (for fault_planted
// only: "norm.one_shard:plant" makes the program compute something wrong there, so that `athanor verify` can be seen to
// notice).

#include <string_view>

namespace athanor {

/// Passes a named place; kill, term and int act here.
void fault_point(std::string_view name);

/// As fault_point; also answers the errno to pretend, or 0.
int fault_errno(std::string_view name);

/// Should the wrong thing be computed here? Always if "NAME:plant" is armed; with a count ("NAME:plant@3+") from then
/// on. Costs a comparison where nothing is armed.
bool fault_planted(std::string_view name);

}  // namespace athanor
