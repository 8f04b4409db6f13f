#pragma once
// What one core can do at most, measured on the instruction set that the ops use.

#include <cstddef>
#include <cstdint>
#include <span>

namespace k3pod::bench {

// Runs `rounds` rounds of independent fp32 multiply-adds in registers. Gives the number of floating
// point operations done; `sink` keeps the work alive.
int64_t multiply_add(int64_t rounds, float* sink);

// Reads every byte once.
void read_all(std::span<const std::byte> bytes, float* sink);

// Name of the instruction set in use, e.g. "AVX3".
const char* instruction_set();

}  // namespace k3pod::bench
