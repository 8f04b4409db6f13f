// Exchange flags between a step's graph and a host thread. Layout and words: device/hand_off.h.
//
// Host memory is a PCIe or C2C round trip away, so each side only ever waits on a word that the
// other one wrote behind its data: a release at system scope on one side, an acquire on the other.

#include "k3pod/kernels/hand_off.h"

#include <cuda_bf16.h>

#include <algorithm>
#include <string>

#include "common/launch.cuh"

namespace k3pod::kernels {
namespace {

constexpr int kVector = 8;             // values that a thread moves at once: 16 bytes of bf16
constexpr int kPartsAtOnce = 8;        // whose loads are in flight together
constexpr int kMaxThreads = 448;       // one row of 3,584 values
constexpr int kMaxCombineBlocks = 32;  // they spin, and leave the other SMs to those they wait for
constexpr int kPollingBlocks = 8;      // more blocks than that wait for block 0 instead of the host
constexpr int kAbortLane = kMaxHandOffParts;
constexpr unsigned kWholeWarp = 0xffffffffu;

struct State {
    uint64_t base;      // sequence number before the step's first exchange
    uint64_t limit_ns;  // of one wait
    uint32_t is_lost;   // an exchange of this step was given up
    uint32_t num_arrived;
    uint32_t formats;    // of the parts, two bits each; valid with announced
    uint64_t announced;  // sequence that block 0 found answered (or lost), for the other blocks
};

// What every kernel needs of a link, by address.
struct Port {
    State* state;
    uint64_t* replies;
    uint64_t* step_base;
    uint64_t* limit_ns;
    uint64_t* request;
    uint64_t* outcome;
    __nv_bfloat16* latents;  // [R, L]
    uint16_t* experts;       // [R, K]
    float* weights;          // [R, K]
    const std::byte* parts;
    int64_t part_bytes;
    int32_t num_parts;
    int32_t latent;
    int32_t top_k;
};

Port port_of(const HandOffLink& link) {
    const HandOffLayout layout = hand_off_layout(link.shape);
    const auto at = [&](int64_t offset) { return link.shared + offset; };
    return {.state = reinterpret_cast<State*>(link.state),
            .replies = reinterpret_cast<uint64_t*>(at(layout.replies)),
            .step_base = reinterpret_cast<uint64_t*>(at(layout.step_base)),
            .limit_ns = reinterpret_cast<uint64_t*>(at(layout.limit_ns)),
            .request = reinterpret_cast<uint64_t*>(at(layout.request)),
            .outcome = reinterpret_cast<uint64_t*>(at(layout.outcome)),
            .latents = reinterpret_cast<__nv_bfloat16*>(at(layout.latents)),
            .experts = reinterpret_cast<uint16_t*>(at(layout.experts)),
            .weights = reinterpret_cast<float*>(at(layout.weights)),
            .parts = at(layout.parts),
            .part_bytes = layout.part_bytes,
            .num_parts = link.shape.num_parts,
            .latent = link.shape.latent,
            .top_k = link.shape.top_k};
}

__device__ uint64_t load_from_host(const uint64_t* word) {
    uint64_t value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

__device__ void store_to_host(uint64_t* word, uint64_t value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

__device__ void fence_with_host() {
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

__device__ uint64_t load_acquire(const uint64_t* word) {
    uint64_t value;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

__device__ void store_release(uint64_t* word, uint64_t value) {
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

__device__ uint64_t now_ns() {
    uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

__device__ bool is_lost(const State* state) {
    return *reinterpret_cast<const volatile uint32_t*>(&state->is_lost) != 0;
}

// ---- begin ----

__global__ void begin_kernel(Port port) {
    port.state->base = load_from_host(port.step_base);
    port.state->limit_ns = load_from_host(port.limit_ns);
    port.state->is_lost = 0;
    port.state->num_arrived = 0;
}

// ---- dispatch ----

struct DispatchParams {
    Port port;
    int32_t exchange_idx;
    const int32_t* num_rows;
    const float* latents_f32;
    const __nv_bfloat16* latents_bf16;
    const uint16_t* experts;
    const float* weights;
};

__device__ uint32_t pack_bf16(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ void publish_vectors(const DispatchParams& p, int64_t row) {
    const int64_t begin = row * p.port.latent;
    for (int32_t i = threadIdx.x * kVector; i < p.port.latent; i += blockDim.x * kVector) {
        uint4 bits;
        if (p.latents_bf16 != nullptr) {
            bits = *reinterpret_cast<const uint4*>(p.latents_bf16 + begin + i);
        } else {
            const auto* from = reinterpret_cast<const float4*>(p.latents_f32 + begin + i);
            const float4 a = from[0];
            const float4 b = from[1];
            bits = {pack_bf16(a.x, a.y), pack_bf16(a.z, a.w), pack_bf16(b.x, b.y),
                    pack_bf16(b.z, b.w)};
        }
        *reinterpret_cast<uint4*>(p.port.latents + begin + i) = bits;
    }
}

__device__ void publish_values(const DispatchParams& p, int64_t row) {
    const int64_t begin = row * p.port.latent;
    for (int32_t i = threadIdx.x; i < p.port.latent; i += blockDim.x) {
        p.port.latents[begin + i] = p.latents_bf16 != nullptr
                                        ? p.latents_bf16[begin + i]
                                        : __float2bfloat16_rn(p.latents_f32[begin + i]);
    }
}

// One block for each row of the bucket; the last one to arrive raises the request word.
__global__ void __launch_bounds__(kMaxThreads) dispatch_kernel(DispatchParams p) {
    State* state = p.port.state;
    if (is_lost(state)) return;
    const auto bucket = static_cast<int32_t>(gridDim.x);
    const int32_t num_rows = p.num_rows != nullptr ? min(*p.num_rows, bucket) : bucket;
    const auto row = static_cast<int32_t>(blockIdx.x);
    if (row < num_rows) {
        if (p.port.latent % kVector == 0) {
            publish_vectors(p, row);
        } else {
            publish_values(p, row);
        }
        const int64_t picks = int64_t{row} * p.port.top_k;
        for (int32_t k = threadIdx.x; k < p.port.top_k; k += blockDim.x) {
            p.port.experts[picks + k] = p.experts[picks + k];
            p.port.weights[picks + k] = p.weights[picks + k];
        }
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (bucket > 1) {
        fence_with_host();
        if (atomicAdd(&state->num_arrived, 1) != gridDim.x - 1) return;
        state->num_arrived = 0;
    }
    fence_with_host();
    const uint64_t sequence = state->base + p.exchange_idx + 1;
    store_to_host(p.port.request, HandOffWord::request(sequence, num_rows));
}

// ---- combine ----

struct CombineParams {
    Port port;
    int32_t exchange_idx;
    int32_t rows;
    const int32_t* num_rows;
    const float* local;
    float* out;
};

// The answer to one exchange: formats of the parts, or that it was given up.
struct Answer {
    uint32_t formats;
    bool is_lost;
};

__device__ Answer lose(const Port& port, uint64_t sequence, int32_t part, HandOffLoss why) {
    if (threadIdx.x == 0) {
        port.state->is_lost = 1;
        store_to_host(port.outcome, HandOffWord::outcome(sequence, part, why));
    }
    return {0, true};
}

// One warp: a lane for each part's word, one for the abort word, read together.
__device__ Answer wait_for_host(const Port& port, uint64_t sequence) {
    const auto lane = static_cast<int32_t>(threadIdx.x);
    const uint64_t limit_ns = port.state->limit_ns;
    const uint64_t start = now_ns();
    while (true) {
        const uint64_t word = lane <= kAbortLane ? load_from_host(port.replies + lane) : 0;
        const bool is_missing = lane < port.num_parts && word >> 2 != sequence;
        const unsigned missing = __ballot_sync(kWholeWarp, is_missing);
        if (missing == 0) {
            fence_with_host();
            const uint32_t format = lane < port.num_parts ? word & 3 : 0;
            return {__reduce_or_sync(kWholeWarp, lane < 16 ? format << (2 * lane) : 0), false};
        }
        const int32_t part = __ffs(static_cast<int>(missing)) - 1;
        if (__any_sync(kWholeWarp, lane == kAbortLane && word != 0)) {
            return lose(port, sequence, part, HandOffLoss::kAborted);
        }
        if (__any_sync(kWholeWarp, now_ns() - start > limit_ns)) {
            return lose(port, sequence, part, HandOffLoss::kTimedOut);
        }
    }
}

// One warp: what block 0 has found. Twice its limit covers that it may start later.
__device__ Answer wait_for_first_block(const Port& port, uint64_t sequence) {
    State* state = port.state;
    const uint64_t limit_ns = 2 * state->limit_ns;
    const uint64_t start = now_ns();
    while (load_acquire(&state->announced) != sequence) {
        if (is_lost(state)) return {0, true};
        if (now_ns() - start > limit_ns) return lose(port, sequence, 0, HandOffLoss::kTimedOut);
    }
    return {state->formats, false};
}

__device__ Answer wait_for_answer(const Port& port, uint64_t sequence) {
    if (is_lost(port.state)) return {0, true};
    if (gridDim.x <= kPollingBlocks) return wait_for_host(port, sequence);
    if (blockIdx.x != 0) return wait_for_first_block(port, sequence);
    const Answer answer = wait_for_host(port, sequence);
    if (threadIdx.x == 0 && !answer.is_lost) {
        port.state->formats = answer.formats;
        store_release(&port.state->announced, sequence);
    }
    return answer;
}

__device__ PartFormat format_of(uint32_t formats, int32_t part) {
    return static_cast<PartFormat>(formats >> (2 * part) & 3);
}

// 8 values of a part's row; what was in the cache is not believed.
struct PartVector {
    uint4 low, high;  // high: fp32 only

    __device__ void load(const std::byte* part, PartFormat format, int64_t at) {
        if (format == PartFormat::kBf16) {
            low = __ldcv(reinterpret_cast<const uint4*>(part + 2 * at));
        } else if (format == PartFormat::kF32) {
            low = __ldcv(reinterpret_cast<const uint4*>(part + 4 * at));
            high = __ldcv(reinterpret_cast<const uint4*>(part + 4 * at) + 1);
        }
    }
    __device__ void add_to(float (&sum)[kVector], PartFormat format) const {
        const uint32_t words[kVector] = {low.x,  low.y,  low.z,  low.w,
                                         high.x, high.y, high.z, high.w};
        if (format == PartFormat::kBf16) {
#pragma unroll
            for (int i = 0; i < kVector / 2; ++i) {
                sum[2 * i] += __uint_as_float(words[i] << 16);
                sum[2 * i + 1] += __uint_as_float(words[i] & 0xffff0000u);
            }
        } else if (format == PartFormat::kF32) {
#pragma unroll
            for (int i = 0; i < kVector; ++i) sum[i] += __uint_as_float(words[i]);
        }
    }
};

__device__ void sum_vectors(const CombineParams& p, uint32_t formats, int64_t row) {
    const int64_t begin = row * p.port.latent;
    for (int32_t i = threadIdx.x * kVector; i < p.port.latent; i += blockDim.x * kVector) {
        float sum[kVector] = {};
        if (p.local != nullptr) {
            const auto* local = reinterpret_cast<const float4*>(p.local + begin + i);
            *reinterpret_cast<float4*>(sum) = local[0];
            *reinterpret_cast<float4*>(sum + 4) = local[1];
        }
        for (int32_t first = 0; first < p.port.num_parts; first += kPartsAtOnce) {
            PartVector vectors[kPartsAtOnce];
#pragma unroll
            for (int j = 0; j < kPartsAtOnce; ++j) {
                vectors[j].load(p.port.parts + (first + j) * p.port.part_bytes,
                                format_of(formats, first + j), begin + i);
            }
#pragma unroll
            for (int j = 0; j < kPartsAtOnce; ++j) {
                vectors[j].add_to(sum, format_of(formats, first + j));
            }
        }
        auto* out = reinterpret_cast<float4*>(p.out + begin + i);
        out[0] = *reinterpret_cast<const float4*>(sum);
        out[1] = *reinterpret_cast<const float4*>(sum + 4);
    }
}

__device__ void sum_values(const CombineParams& p, uint32_t formats, int64_t row) {
    const int64_t begin = row * p.port.latent;
    for (int32_t i = threadIdx.x; i < p.port.latent; i += blockDim.x) {
        float sum = p.local != nullptr ? p.local[begin + i] : 0.0f;
        for (int32_t part = 0; part < p.port.num_parts; ++part) {
            const std::byte* from = p.port.parts + part * p.port.part_bytes;
            const PartFormat format = format_of(formats, part);
            if (format == PartFormat::kBf16) {
                const auto* bits = reinterpret_cast<const unsigned short*>(from) + begin + i;
                sum += __uint_as_float(uint32_t{__ldcv(bits)} << 16);
            } else if (format == PartFormat::kF32) {
                sum += __ldcv(reinterpret_cast<const float*>(from) + begin + i);
            }
        }
        p.out[begin + i] = sum;
    }
}

__global__ void __launch_bounds__(kMaxThreads) combine_kernel(CombineParams p) {
    __shared__ Answer answer;
    if (threadIdx.x < 32) {
        const uint64_t sequence = p.port.state->base + p.exchange_idx + 1;
        const Answer found = wait_for_answer(p.port, sequence);
        if (threadIdx.x == 0) answer = found;
    }
    __syncthreads();
    const int32_t num_rows = p.num_rows != nullptr ? min(*p.num_rows, p.rows) : p.rows;
    for (auto row = static_cast<int32_t>(blockIdx.x); row < p.rows; row += gridDim.x) {
        if (answer.is_lost || row >= num_rows) {
            float* out = p.out + int64_t{row} * p.port.latent;
            for (int32_t i = threadIdx.x; i < p.port.latent; i += blockDim.x) out[i] = 0.0f;
        } else if (p.port.latent % kVector == 0) {
            sum_vectors(p, answer.formats, row);
        } else {
            sum_values(p, answer.formats, row);
        }
    }
}

// ---- launching ----

Status refuse(const char* kernel, const std::string& what) {
    return invalid_argument(std::string(kernel) + ": " + what);
}

Status check_link(const char* kernel, const HandOffLink& link) {
    if (link.shared == nullptr || link.state == nullptr) {
        return refuse(kernel, "the link has no shared memory or no state");
    }
    if (link.shape.num_parts < 1 || link.shape.num_parts > kMaxHandOffParts) {
        return refuse(kernel, "num_parts is " + std::to_string(link.shape.num_parts) +
                                  ", it must be in [1, " + std::to_string(kMaxHandOffParts) + "]");
    }
    return Status::ok();
}

Status check_exchange(const char* kernel, const HandOffLink& link, int32_t exchange_idx,
                      int32_t rows) {
    K3POD_TRY(check_link(kernel, link));
    if (rows < 1 || rows > link.shape.max_rows) {
        return refuse(kernel, std::to_string(rows) + " rows, they must be in [1, " +
                                  std::to_string(link.shape.max_rows) + "]");
    }
    if (exchange_idx < 0 || exchange_idx >= link.shape.num_exchanges) {
        return refuse(kernel, "exchange " + std::to_string(exchange_idx) + " of " +
                                  std::to_string(link.shape.num_exchanges));
    }
    return Status::ok();
}

LaunchShape shape_of(int32_t num_blocks, int32_t latent) {
    const int32_t threads = (latent + kVector - 1) / kVector;
    const int32_t whole_warps = (threads + 31) / 32 * 32;
    return {.grid = dim3(static_cast<unsigned>(num_blocks)),
            .block = dim3(static_cast<unsigned>(std::min(whole_warps, kMaxThreads)))};
}

}  // namespace

int64_t hand_off_state_bytes() {
    return sizeof(State);
}

Status hand_off_begin(const HandOffLink& link, CudaStream stream) {
    K3POD_TRY(check_link("hand_off_begin", link));
    return launch("hand_off_begin", begin_kernel, {}, stream, port_of(link));
}

Status hand_off_dispatch(const HandOffDispatchArgs& args, CudaStream stream) {
    constexpr const char* kName = "hand_off_dispatch";
    K3POD_TRY(check_exchange(kName, args.link, args.exchange_idx, args.rows));
    if ((args.latents_f32 == nullptr) == (args.latents_bf16 == nullptr)) {
        return refuse(kName, "exactly one of latents_f32 and latents_bf16 must be given");
    }
    const DispatchParams params{
        .port = port_of(args.link),
        .exchange_idx = args.exchange_idx,
        .num_rows = args.num_rows,
        .latents_f32 = args.latents_f32,
        .latents_bf16 = reinterpret_cast<const __nv_bfloat16*>(args.latents_bf16),
        .experts = args.experts,
        .weights = args.weights};
    return launch(kName, dispatch_kernel, shape_of(args.rows, args.link.shape.latent), stream,
                  params);
}

Status hand_off_combine(const HandOffCombineArgs& args, CudaStream stream) {
    constexpr const char* kName = "hand_off_combine";
    K3POD_TRY(check_exchange(kName, args.link, args.exchange_idx, args.rows));
    const CombineParams params{.port = port_of(args.link),
                               .exchange_idx = args.exchange_idx,
                               .rows = args.rows,
                               .num_rows = args.num_rows,
                               .local = args.local,
                               .out = args.out};
    return launch(kName, combine_kernel,
                  shape_of(std::min(args.rows, kMaxCombineBlocks), args.link.shape.latent), stream,
                  params);
}

}  // namespace k3pod::kernels
