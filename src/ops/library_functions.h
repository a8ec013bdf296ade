#pragma once
// Elementary functions of libtorch on the CPU (exp, log, cos, sin, ...), which are MKL's.

namespace athanor::ops {

/// Calls each of these functions once, on the calling thread. To be called before libtorch computes one of them for
/// many values. If the first two calls of MKL's functions in a process come from two threads at the same moment, one
/// gets values that are right to only four digits. That was seen in about one start of a hundred on a busy machine, in
/// the angles of the first microbatch (libtorch 2.13, 2026-11-27). A second call does nothing.
/// @throws Error if a function is still wrong after many calls.
void start_library_functions();

}  // namespace athanor::ops
