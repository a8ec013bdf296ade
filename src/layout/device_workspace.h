#pragma once
// The memory that cuBLAS has for itself on a CUDA device. It was not measured on a GPU.
//
// Libtorch gives each pair of a cuBLAS handle and a stream a workspace from its allocator at the first product
// and never frees it (getCurrentCUDABlasHandle in ATen/cuda/CublasHandlePool.cpp). It has 32 MiB on Hopper (libtorch
// newer than 2.11: also on Blackwell) and 8 MiB + 128 KiB on others; CUBLAS_WORKSPACE_CONFIG, described in NVIDIA's
// manual of cuBLAS ("Results Reproducibility"), sets another size. A thread has one handle. Two threads multiply, on
// one stream: the one that computes forward, and autograd's, which computes backward (OnDeviceMemory.* in memory_test).
// A graph is recorded on another stream, by the same threads. Products with a bias, for which libtorch would take
// cuBLASLt and its separate workspace, do not occur.

namespace athanor::inline layout {

/// Returns the bytes of one workspace of cuBLAS: CUBLAS_WORKSPACE_CONFIG, read as libtorch reads it (":SIZE:COUNT" in
/// KiB, several times), or the 32 MiB of Hopper.
double cublas_workspace_bytes();

/// Returns the number of pairs of a handle and a stream that multiply in a run.
/// @param records_graph  train.cuda_graphs, in a run of one rank; one graph is counted, as in count_graph_bytes.
int count_cublas_workspaces(bool records_graph);

}  // namespace athanor::inline layout
