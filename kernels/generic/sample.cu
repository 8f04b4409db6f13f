// One block draws for one row. The arithmetic is that of src/sample operation by operation, each
// rounded on its own, so that equal logits give equal bits.

#include "k3pod/kernels/sample.h"

#include "common/launch.cuh"
#include "common/require.h"
#include "generic/ranked_ids.cuh"

namespace k3pod::kernels {
namespace {

constexpr float kGreedyTemperature = 1e-5f;
constexpr float kLargest = 3.402823466e38f;

// Per row: weights [V], level 0 of the ranking, candidates [V].
struct RowWorkspace {
    int64_t weights, top, candidates, size;
};
__host__ __device__ RowWorkspace row_workspace(int32_t vocab) {
    const auto aligned = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
    RowWorkspace layout = {};
    layout.top = aligned(vocab * int64_t{sizeof(float)});
    layout.candidates = layout.top + aligned(sizeof(Bins));
    layout.size = layout.candidates + aligned(vocab * int64_t{sizeof(Key)});
    return layout;
}

__device__ uint64_t mix_bits(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

__device__ uint64_t random_bits(uint64_t seed, uint64_t position) {
    constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15u;
    return mix_bits(mix_bits(seed ^ kGoldenGamma) + (position + 1) * kGoldenGamma);
}

// exp for x <= 0, as src/sample/float_ops.cc has it.
__device__ float exp_nonpositive(float x) {
    constexpr float kLowest = -87.0f;
    constexpr float kRoundToInteger = 12582912.0f;
    const float clamped = x > kLowest ? x : kLowest;
    const float shifted = __fadd_rn(__fmul_rn(clamped, 1.44269504f), kRoundToInteger);
    const float n = __fsub_rn(shifted, kRoundToInteger);
    const float r =
        __fsub_rn(__fsub_rn(clamped, __fmul_rn(n, 0.693359375f)), __fmul_rn(n, -2.12194440e-4f));
    float p = 1.9875691e-4f;
    for (const float c : {1.3981999e-3f, 8.3334519e-3f, 4.1665796e-2f, 1.6666665e-1f, 0.5f}) {
        p = __fadd_rn(__fmul_rn(p, r), c);
    }
    p = __fadd_rn(__fadd_rn(__fmul_rn(__fmul_rn(p, r), r), r), 1.0f);
    const int exponent = __float_as_int(shifted) - __float_as_int(kRoundToInteger) + 127;
    const float result = __fmul_rn(p, __int_as_float(exponent << 23));
    return x >= kLowest ? result : 0.0f;
}

struct Row {
    const SampleArgs& args;
    const SampleRow& params;
    const float* logits;  // [V] raw
    int32_t* history;     // [V] or null
    float* weights;       // [V] adjusted logits, then weights

    __device__ bool is_adjusted() const {
        return history != nullptr || params.num_biases > 0 || params.num_banned > 0;
    }
};

__device__ float penalise(const SampleRow& params, float logit, int32_t generated) {
    if (generated < 0) return logit;
    const float repetition = params.repetition_penalty;
    logit = logit > 0 ? __fdiv_rn(logit, repetition) : __fmul_rn(logit, repetition);
    logit = __fsub_rn(logit, __fmul_rn(params.frequency_penalty, static_cast<float>(generated)));
    return generated > 0 ? __fsub_rn(logit, params.presence_penalty) : logit;
}

// row.weights = the logits after penalties, biases and bans.
__device__ void adjust(const Row& row) {
    const int first = static_cast<int>(threadIdx.x);
    for (int id = first; id < row.args.vocab; id += kRankThreads) {
        const int32_t generated = row.history != nullptr ? row.history[id] : -1;
        row.weights[id] = penalise(row.params, row.logits[id], generated);
    }
    __syncthreads();
    for (int i = first; i < row.params.num_biases; i += kRankThreads) {
        const int at = row.params.first_bias + i;
        float& logit = row.weights[row.args.bias_ids[at]];
        logit = __fadd_rn(logit, row.args.bias_values[at]);
    }
    __syncthreads();
    for (int i = first; i < row.params.num_banned; i += kRankThreads) {
        row.weights[row.args.banned[row.params.first_banned + i]] = -INFINITY;
    }
    __syncthreads();
}

// Largest value and the first id that has it.
struct Peak {
    float value = -INFINITY;
    int32_t id = 0x7fffffff;
    __device__ void offer(const Peak& other) {
        if (other.value > value || (other.value == value && other.id < id)) *this = other;
    }
};

__device__ Peak find_peak(const float* values, int32_t vocab, Peak* of_warps) {
    Peak peak;
    visit_all(values, vocab, [&](int32_t id, float value, bool is_there) {
        if (is_there) peak.offer({value, id});
    });
    const auto reduce = [&peak] {
        for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
            peak.offer({__shfl_xor_sync(kAllLanes, peak.value, offset),
                        __shfl_xor_sync(kAllLanes, peak.id, offset)});
        }
    };
    reduce();
    if (lane_idx() == 0) of_warps[warp_idx()] = peak;
    __syncthreads();
    peak = of_warps[lane_idx()];
    reduce();
    return peak;
}

// Whether no value is NaN or +inf.
__device__ bool is_drawable(const float* values, int32_t vocab) {
    bool is_bad = false;
    visit_all(values, vocab, [&](int32_t, float value, bool is_there) {
        is_bad = is_bad || (is_there && !(value <= kLargest));
    });
    return __syncthreads_or(is_bad) == 0;
}

// Fills weights and level 0 of the ranking; gives what all ids of weight above 0 are together.
__device__ IdGroup weigh(const float* values, float max, float scale, const RankWorkspace& work,
                         float* weights, RankShared& shared) {
    clear_bins(*work.bins);
    IdGroup group;
    visit_all(values, work.vocab, [&](int32_t id, float value, bool is_there) {
        const float weight = exp_nonpositive(__fmul_rn(__fsub_rn(value, max), scale));
        const bool is_positive = is_there && weight != 0.0f;
        if (is_there) weights[id] = weight;
        add_to_bins(*work.bins, is_positive, bucket_of(weight), weight);
        if (is_positive) group.add({mass_of(weight), 1});
    });
    group = inclusive_scan_lanes(group);
    if (lane_idx() == kWarpSize - 1) shared.of_warps[warp_idx()] = group;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kNumBins; i += kRankThreads) {
        work.top->mass[i] = work.bins->mass[i];
        work.top->count[i] = work.bins->count[i];
    }
    IdGroup all;
    for (int w = 0; w < kRankThreads / kWarpSize; ++w) all.add(shared.of_warps[w]);
    __syncthreads();
    return all;
}

// What ids of at least this weight, which is above 0, are together.
__device__ IdGroup at_least(float least, const RankWorkspace& work, RankShared& shared) {
    IdGroup group;
    visit_all(work.weights, work.vocab, [&](int32_t, float weight, bool is_there) {
        if (is_there && weight >= least) group.add({mass_of(weight), 1});
    });
    group = inclusive_scan_lanes(group);
    if (lane_idx() == kWarpSize - 1) shared.of_warps[warp_idx()] = group;
    __syncthreads();
    IdGroup all;
    for (int w = 0; w < kRankThreads / kWarpSize; ++w) all.add(shared.of_warps[w]);
    __syncthreads();
    return all;
}

__device__ int32_t draw(const Row& row, const IdGroup& positive, const RankWorkspace& work,
                        RankShared& shared) {
    const SampleRow& params = row.params;
    IdGroup kept{positive.mass, work.vocab};
    if (params.top_k > 0 && params.top_k < work.vocab) {
        // Ids of weight 0 come last and weigh nothing.
        kept.count = params.top_k;
        if (params.top_k < positive.count) {
            const RankPoint last{static_cast<Mass>(params.top_k - 1), false};
            kept = id_at(work, last, shared).prefix();
        }
    }
    if (params.top_p < 1.0f) {
        const double wanted = static_cast<double>(params.top_p) * static_cast<double>(kept.mass);
        const Mass mass = static_cast<Mass>(ceil(wanted));
        if (mass < kept.mass) kept = id_at(work, {mass > 0 ? mass - 1 : 0}, shared).prefix();
    }
    if (params.min_p > 0.0f) {
        const IdGroup likely = at_least(params.min_p, work, shared);
        if (likely.count < kept.count) kept = likely;
    }
    const uint64_t bits = random_bits(params.seed, static_cast<uint64_t>(params.position));
    return id_of(id_at(work, {__umul64hi(bits, kept.mass)}, shared).key);
}

__device__ int32_t choose(const Row& row, RankWorkspace work, RankShared& shared, Peak* of_warps) {
    if (!is_drawable(row.logits, row.args.vocab)) return kLogitsNotFiniteId;
    const float* values = row.logits;
    if (row.is_adjusted()) {
        adjust(row);
        values = row.weights;
    }
    const Peak peak = find_peak(values, row.args.vocab, of_warps);
    if (peak.value == -INFINITY) return kNothingToDrawId;
    if (row.params.temperature < kGreedyTemperature) return peak.id;
    const float scale = __fdiv_rn(1.0f, row.params.temperature);
    const IdGroup positive = weigh(values, peak.value, scale, work, row.weights, shared);
    return draw(row, positive, work, shared);
}

__global__ void __launch_bounds__(kRankThreads) sample_kernel(SampleArgs args) {
    extern __shared__ __align__(16) std::byte bins[];
    __shared__ RankShared shared;
    __shared__ Peak of_warps[kRankThreads / kWarpSize];
    wait_for_previous();
    const SampleRow params = args.params[blockIdx.x];
    if (params.is_padding != 0) {
        if (threadIdx.x == 0) args.ids[blockIdx.x] = kPaddingId;
        return;
    }
    const RowWorkspace layout = row_workspace(args.vocab);
    std::byte* memory = args.workspace + blockIdx.x * layout.size;
    const bool has_history = args.histories != nullptr && params.history >= 0;
    const Row row{args, params, args.logits + int64_t{blockIdx.x} * args.vocab,
                  has_history ? args.histories + int64_t{params.history} * args.vocab : nullptr,
                  reinterpret_cast<float*>(memory)};
    const RankWorkspace work{row.weights, args.vocab, reinterpret_cast<Bins*>(memory + layout.top),
                             reinterpret_cast<Key*>(memory + layout.candidates),
                             reinterpret_cast<Bins*>(bins)};
    const int32_t id = choose(row, work, shared, of_warps);
    if (threadIdx.x != 0) return;
    args.ids[blockIdx.x] = id;
    if (id >= 0 && has_history) row.history[id] = max(row.history[id], 0) + 1;
}

__global__ void clear_history_kernel(SampleHistoryArgs args) {
    wait_for_previous();
    const int id = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (id < args.vocab) args.history[id] = -1;
}

__global__ void mark_prompt_kernel(SampleHistoryArgs args) {
    wait_for_previous();
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < args.num_prompt) args.history[args.prompt[i]] = 0;
}

}  // namespace

int64_t sample_workspace_bytes(int32_t rows, int32_t vocab) {
    return rows * row_workspace(vocab).size;
}

Status sample(const SampleArgs& args, CudaStream stream) {
    constexpr const char* kName = "sample";
    K3POD_TRY(require(args.vocab > 0 && args.vocab <= kMaxRankedIds, kName, "vocab", args.vocab,
                      "in [1, 2^24]"));
    K3POD_TRY(require(args.rows >= 0, kName, "rows", args.rows, "at least 0"));
    if (args.rows == 0) return Status::ok();
    K3POD_TRY(require_pointer(args.workspace, kName, "workspace"));
    K3POD_TRY(allow_shared(kName, sample_kernel, sizeof(Bins)));
    const LaunchShape shape{.grid = static_cast<unsigned>(args.rows),
                            .block = kRankThreads,
                            .shared_bytes = sizeof(Bins),
                            .overlaps_previous = true};
    return launch(kName, sample_kernel, shape, stream, args);
}

Status start_sample_history(const SampleHistoryArgs& args, CudaStream stream) {
    constexpr unsigned kThreads = 256;
    LaunchShape shape{
        .grid = blocks_for(args.vocab, kThreads), .block = kThreads, .overlaps_previous = true};
    K3POD_TRY(launch("clear_history", clear_history_kernel, shape, stream, args));
    if (args.num_prompt == 0) return Status::ok();
    shape.grid = blocks_for(args.num_prompt, kThreads);
    return launch("mark_prompt", mark_prompt_kernel, shape, stream, args);
}

}  // namespace k3pod::kernels
