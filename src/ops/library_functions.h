#pragma once
// Elementary functions of libtorch on the CPU (exp, log, cos, sin, ...), which are MKL's.

namespace athanor::ops {

/// Calls each of these functions once, on the calling thread. To be called before libtorch computes one of many values:
/// if two threads of a process are the first to call MKL's functions and do so at the same moment, one of them gets
/// values that are right to four digits only. That was seen in about one start of a hundred on a busy machine, in the
/// angles of the first microbatch (libtorch 2.13, 2026-11-27). A second call does nothing.
/// @throws Error if a function is still wrong after many calls.
void start_library_functions();

}  // namespace athanor::ops
