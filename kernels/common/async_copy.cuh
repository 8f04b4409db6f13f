#pragma once
// Copies of 16 bytes from global to shared memory that run while the threads work on something
// else.

#include <cuda_runtime.h>

#include <cstdint>

namespace k3pod::kernels {

__device__ inline uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Starts a copy, both ends aligned to 16; zeros instead where !is_there, without reading.
__device__ inline void copy_async(void* shared, const void* global, bool is_there) {
    const int bytes = is_there ? 16 : 0;
    asm volatile(
        "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
        "l"(global), "r"(bytes)
        : "memory");
}

// The same for 4 bytes that are there.
__device__ inline void copy_word_async(void* shared, const void* global) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(shared)),
                 "l"(global)
                 : "memory");
}

// The copies that this thread has started since the last commit become a group.
__device__ inline void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most kPending of this thread's groups are under way. Other threads see the bytes
// after the next __syncthreads().
template <int kPending>
__device__ inline void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace k3pod::kernels
