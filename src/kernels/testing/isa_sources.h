// The sources of all kernels that are compiled for several levels; no `#pragma once`, as each level's file takes them
// in under its own name. What they include of the standard library must come before.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "kernels/cpu/accumulate.cpp"
#include "kernels/cpu/adamw.cpp"
#include "kernels/cpu/cross_entropy.cpp"
#include "kernels/cpu/expert_activation.cpp"
#include "kernels/cpu/norm.cpp"
#include "kernels/cpu/rope.cpp"
#include "kernels/cpu/router.cpp"
#include "kernels/cpu/routing.cpp"
#include "kernels/cpu/softmax_tile.cpp"
#include "kernels/cpu/swiglu.cpp"
// NOLINTEND(bugprone-suspicious-include)
#include "kernels/testing/isa_outputs.h"
