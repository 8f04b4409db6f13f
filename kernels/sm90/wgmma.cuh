#pragma once
// The tensor cores of sm_90 as four neighbouring warps use them together: both operands in shared
// memory, sums in registers, products that run while the warps do something else.
//
// An operand is made of rows of 128 bytes, eight to an atom of 1,024 bytes that is aligned to its
// size; the eighth p of row r lies at p ^ (r % 8). Either index may be the one that runs along
// rows.

#include "common/async_copy.cuh"

namespace k3pod::kernels {

inline constexpr int kAtomBytes = 1024;
inline constexpr int kOperandCols = 64;  // bf16 of a row

// Where an operand begins, as the instructions take it: the half that is not the same for all.
// Adding n moves it by 16 n bytes.
__device__ inline uint32_t operand_at(const void* shared) {
    constexpr uint32_t kUnused = 1u << 16;
    return kUnused | (shared_address(shared) & 0x3ffffu) >> 4;
}

// Swizzled by 128 bytes, one atom behind the other: the other half.
inline constexpr uint32_t kOperandUpperHalf = 1u << 30 | kAtomBytes / 16;

// d[64, N] = a[64, 16] b[16, N], plus d where `accumulates`; N / 2 sums a thread. Rows of b run
// along the 16; so do those of a, unless kAIsTransposed. Warp w of the four and lane
// (g, t) = (lane / 4, lane % 4) hold d[4j + i] = row 16w + g + 8 (i / 2), column 8j + 2t + i % 2.
template <bool kAIsTransposed>
__device__ inline void multiply_async(float (&d)[12], uint32_t a, uint32_t b, bool accumulates) {
    asm volatile(
        "{\n"
        ".reg .pred accumulates;\n"
        ".reg .b64 a, b;\n"
        "mov.b64 a, {%12, %16};\n"
        "mov.b64 b, {%13, %16};\n"
        "setp.ne.b32 accumulates, %14, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n24k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11}, "
        "a, b, accumulates, 1, 1, %15, 0;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
        : "r"(a), "r"(b), "r"(accumulates ? 1 : 0), "n"(kAIsTransposed ? 1 : 0),
          "n"(kOperandUpperHalf));
}
template <bool kAIsTransposed>
__device__ inline void multiply_async(float (&d)[24], uint32_t a, uint32_t b, bool accumulates) {
    asm volatile(
        "{\n"
        ".reg .pred accumulates;\n"
        ".reg .b64 a, b;\n"
        "mov.b64 a, {%24, %28};\n"
        "mov.b64 b, {%25, %28};\n"
        "setp.ne.b32 accumulates, %26, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n48k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23}, "
        "a, b, accumulates, 1, 1, %27, 0;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
          "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
          "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
        : "r"(a), "r"(b), "r"(accumulates ? 1 : 0), "n"(kAIsTransposed ? 1 : 0),
          "n"(kOperandUpperHalf));
}

// Comes before the first product that uses registers which something else has written.
__device__ inline void begin_products() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// The products since the last commit become a group.
__device__ inline void commit_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kPending of the groups are under way.
template <int kPending>
__device__ inline void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Makes this thread's ordinary stores to shared memory visible to products behind the next barrier.
__device__ inline void publish_to_products() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace k3pod::kernels
