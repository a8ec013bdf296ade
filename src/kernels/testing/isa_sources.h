// Includes the sources of all kernels that are compiled for several levels. It has no `#pragma once`, because each
// level's file includes it under a different name. Include the standard headers that these sources need first.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "kernels/cpu/accumulate.cpp"
#include "kernels/cpu/adamw.cpp"
#include "kernels/cpu/affine.cpp"
#include "kernels/cpu/cache_attention.cpp"
#include "kernels/cpu/cross_entropy.cpp"
#include "kernels/cpu/expert_activation.cpp"
#include "kernels/cpu/gelu.cpp"
#include "kernels/cpu/norm.cpp"
#include "kernels/cpu/rope.cpp"
#include "kernels/cpu/router.cpp"
#include "kernels/cpu/routing.cpp"
#include "kernels/cpu/row_gate.cpp"
#include "kernels/cpu/soft_cap.cpp"
#include "kernels/cpu/softmax_tile.cpp"
#include "kernels/cpu/swiglu.cpp"
#include "kernels/cpu/symmetric.cpp"
// NOLINTEND(bugprone-suspicious-include)
#include "kernels/testing/isa_outputs.h"
