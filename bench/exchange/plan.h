#pragma once
// What one line of the benchmark measures.

#include <vector>

#include "bench/support/samples.h"
#include "k3pod/transport/transport.h"

namespace k3pod::bench {

inline constexpr int kLatent = 3584;  // one row of bf16 is 7 KiB
inline constexpr size_t kRowBytes = kLatent * 2;

struct Plan {
    TransportKind kind = TransportKind::kShm;
    int num_servers = 1;
    int num_runs = 7;
    int rounds = 4000;  // of a run, after a quarter as many to warm up
};

inline const char* kind_name(TransportKind kind) {
    switch (kind) {
        case TransportKind::kShm:
            return "shm";
        case TransportKind::kTcp:
            return "tcp";
        case TransportKind::kRc:
            return "rc";
    }
    return "";
}

}  // namespace k3pod::bench
