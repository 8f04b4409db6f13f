#include "model/cuda/forward.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "k3pod/kernels/elementwise.h"
#include "model/attn_res.h"
#include "model/check_arguments.h"
#include "model/cuda/project.h"
#include "model/cuda/step_buckets.h"
#include "model/cuda/workspace.h"

namespace k3pod {
namespace {

// Layers of one graph. A launch returns once all its kernels are queued, and the GPU's queue holds
// about a thousand: a graph of all layers would wait for the GPU, which waits for the experts.
constexpr int32_t kSegmentLayers = 8;
constexpr std::chrono::seconds kWorkLimit(60);

}  // namespace

Result<std::unique_ptr<CudaModel>> CudaForwardPass::create(const ModelConfig& config,
                                                           DeviceWeights weights, StateStore& state,
                                                           const CudaModelOptions& options) {
    std::unique_ptr<CudaForwardPass> model(
        new CudaForwardPass(config, std::move(weights), state, options.max_rows));
    K3POD_TRY(model->allocate(state, options));
    K3POD_TRY(model->record_graphs());
    return std::unique_ptr<CudaModel>(std::move(model));
}

CudaForwardPass::CudaForwardPass(const ModelConfig& config, DeviceWeights weights,
                                 const StateStore& state, int32_t max_rows)
    : config_(config),
      weights_(std::move(weights)),
      index_in_kind_(count_per_kind(config)),
      max_rows_(max_rows),
      num_slots_(state.shape().num_slots),
      rows_(max_rows, config.vocab, state.shape().num_slots) {}

Status CudaForwardPass::allocate(StateStore& state, const CudaModelOptions& options) {
    const int32_t num_pages = state.shape().num_pages;
    const int32_t max_pages = options.max_context > 0
                                  ? std::min(num_pages, StateStore::pages_for(options.max_context))
                                  : num_pages;
    const int32_t slice = std::min(max_rows_, kMaxBucketRows);
    K3POD_ASSIGN(stream_, DeviceStream::create());
    // Buckets pad to chunks that no slot stands behind.
    K3POD_ASSIGN(input_, StepInput::create(max_rows_, std::max(slice, num_slots_), max_pages));
    K3POD_ASSIGN(exchange_, ExpertExchange::create(config_, max_rows_));
    K3POD_ASSIGN(attn_res_,
                 CudaAttnRes::create(config_, AttnResStream::num_blocks(config_), max_rows_));
    K3POD_ASSIGN(kda_, CudaKda::create(config_, state, max_rows_));
    K3POD_ASSIGN(mla_, CudaMla::create(config_, state, max_rows_, max_pages * kPageTokens));
    K3POD_ASSIGN(dense_, CudaMlp::create(config_, config_.intermediate, max_rows_));
    K3POD_ASSIGN(moe_, CudaMoe::create(config_, exchange_->link(), max_rows_));
    K3POD_ASSIGN(x_, DeviceRowBuffer::create(max_rows_, config_.hidden));
    K3POD_ASSIGN(logits_, DeviceRowBuffer::create(slice, config_.vocab));
    K3POD_ASSIGN(host_logits_,
                 PinnedBuffer::create(int64_t{slice} * config_.vocab * int64_t{sizeof(float)}));
    K3POD_ASSIGN(workspace_, DeviceBuffer::create(workspace_bytes(config_, weights_, max_rows_)));
    return Status::ok();
}

// Recording calls every launcher, so a size that a kernel does not take ends the start here, with
// the kernel's name.
Status CudaForwardPass::record_graphs() {
    for (const int32_t rows : step_buckets(max_rows_)) {
        K3POD_ASSIGN(Segments segments, record(decode_launch(rows)));
        buckets_.push_back({rows, std::move(segments)});
    }
    const StepLaunch prefill = mixed_launch(max_rows_, 1, max_rows_);
    const auto launch_prefill = [&](CudaStream) -> Status {
        K3POD_TRY(launch_input(prefill));
        return launch_layers(prefill, {0, config_.num_layers}, {});
    };
    return DeviceGraph::capture(stream_.get(), launch_prefill).status();
}

Result<CudaForwardPass::Segments> CudaForwardPass::record(const StepLaunch& step) {
    Segments segments;
    for (int32_t i = 0; i < num_segments(); ++i) {
        const auto launch = [&](CudaStream) { return launch_segment(step, i); };
        K3POD_ASSIGN(DeviceGraph graph, DeviceGraph::capture(stream_.get(), launch));
        segments.push_back(std::move(graph));
    }
    return segments;
}

Status CudaForwardPass::forward(const ModelStep& step, ExpertPort& experts, std::span<float> logits,
                                ForwardProbe* probe) {
    K3POD_TRY(use_cuda_device(kCudaModelDevice));
    K3POD_TRY(rows_.assign(step));
    K3POD_TRY(check_logits(logits, rows_.num_logits(), config_.vocab));
    if (rows_.count() == 0) return Status::ok();
    if (probe == nullptr && is_decode()) return replay_bucket(step.step, experts, logits);
    return run(step, experts, logits, probe);
}

bool CudaForwardPass::is_decode() const {
    return rows_.count() <= buckets_.back().rows && std::ssize(rows_.chunks()) == rows_.count();
}

Status CudaForwardPass::replay_bucket(uint64_t step, ExpertPort& experts, std::span<float> logits) {
    const auto bucket = std::ranges::lower_bound(buckets_, rows_.count(), {}, &Bucket::rows);
    K3POD_TRY(input_.write(rows_, bucket->rows, bucket->rows));
    K3POD_TRY(replay(bucket->segments, step, experts));
    copy_decoded(logits);
    return Status::ok();
}

// The segment behind the one in work is always queued, so that the GPU never waits for a launch.
Status CudaForwardPass::replay(const Segments& segments, uint64_t step, ExpertPort& experts) {
    exchange_->begin_step(step);
    size_t num_launched = 0;
    const auto launch_through = [&](int32_t segment) -> Status {
        const size_t end = std::min(static_cast<size_t>(segment) + 1, segments.size());
        for (; num_launched < end; ++num_launched)
            K3POD_TRY(segments[num_launched].launch(stream_.get()));
        return Status::ok();
    };
    Status served;
    for (int32_t layer = 0; layer < config_.num_layers && served.is_ok(); ++layer) {
        served = launch_through(layer / kSegmentLayers + 1);
        if (!served.is_ok() || !config_.is_moe_layer(layer)) continue;
        served = exchange_->serve(layer - config_.first_dense_layers, experts, stream_);
    }
    return finish(served);
}

// Waits for the step's work to end, well or not: what the next step writes is still read until
// then.
Status CudaForwardPass::finish(const Status& served) {
    if (!served.is_ok()) exchange_->abandon();
    const Status ran = wait_for_work();
    K3POD_TRY(served);
    K3POD_TRY(ran);
    return exchange_->end_step();
}

// Abandoned or served, what is left of a step takes milliseconds. A kernel that never ends cannot
// be stopped, but it is not waited for without end either.
Status CudaForwardPass::wait_for_work() const {
    const auto limit = std::chrono::steady_clock::now() + kWorkLimit;
    for (;;) {
        const Status work = stream_.poll();
        if (work.code() != Code::kUnavailable) return work;
        if (std::chrono::steady_clock::now() > limit) {
            return deadline_exceeded(
                "the GPU has not finished a step 60 s after its last exchange; restart the "
                "station");
        }
        std::this_thread::yield();
    }
}

// The chunks are the first rows of the bucket, in order.
void CudaForwardPass::copy_decoded(std::span<float> logits) const {
    const auto vocab = static_cast<size_t>(config_.vocab);
    const float* from = host_logits_.as<float>();
    float* to = logits.data();
    for (const ChunkRows& chunk : rows_.chunks()) {
        if (chunk.logits_rows().count > 0) {
            std::memcpy(to, from, vocab * sizeof(float));
            to += vocab;
        }
        from += vocab;
    }
}

Status CudaForwardPass::run(const ModelStep& step, ExpertPort& experts, std::span<float> logits,
                            ForwardProbe* probe) {
    const auto num_chunks = static_cast<int32_t>(rows_.chunks().size());
    int32_t max_chunk_rows = 0;
    for (const ChunkRows& chunk : rows_.chunks())
        max_chunk_rows = std::max(max_chunk_rows, chunk.rows.count);
    K3POD_TRY(input_.write(rows_, rows_.count(), num_chunks));

    const StepLaunch launch = mixed_launch(rows_.count(), num_chunks, max_chunk_rows);
    exchange_->begin_step(step.step);
    const auto after_layer = [&](int32_t layer) -> Status {
        if (config_.is_moe_layer(layer)) {
            K3POD_TRY(exchange_->serve(layer - config_.first_dense_layers, experts, stream_));
        }
        return probe == nullptr ? Status::ok() : show(launch, layer, *probe);
    };
    Status served = launch_input(launch);
    if (served.is_ok()) served = launch_layers(launch, {0, config_.num_layers}, after_layer);
    if (served.is_ok()) served = head_of_chunks(launch, logits);
    return finish(served);
}

Result<std::vector<KernelTime>> CudaForwardPass::profile(const ModelStep& step,
                                                         ExpertPort& experts) {
    K3POD_TRY(use_cuda_device(kCudaModelDevice));
    K3POD_TRY(rows_.assign(step));
    if (!is_decode() || rows_.count() == 0) {
        return invalid_argument("a step is profiled with one token for each of its sequences");
    }
    const auto bucket = std::ranges::lower_bound(buckets_, rows_.count(), {}, &Bucket::rows);
    K3POD_TRY(input_.write(rows_, bucket->rows, bucket->rows));
    KernelClock clock;
    StepLaunch launch = decode_launch(bucket->rows);
    launch.clock = &clock;
    K3POD_ASSIGN(const Segments segments, record(launch));
    K3POD_TRY(replay(segments, step.step, experts));
    return clock.read();
}

StepLaunch CudaForwardPass::decode_launch(int32_t bucket) const {
    return mixed_launch(bucket, bucket, 1);
}

StepLaunch CudaForwardPass::mixed_launch(int32_t rows, int32_t num_chunks,
                                         int32_t max_chunk_rows) const {
    return {.rows = rows,
            .rows_used = input_.rows_used(),
            .ids = input_.ids(),
            .chunks = input_.chunks(num_chunks, max_chunk_rows),
            .stream = stream_.get(),
            .workspace = workspace_.data()};
}

int32_t CudaForwardPass::num_segments() const {
    return (config_.num_layers + kSegmentLayers - 1) / kSegmentLayers;
}

Status CudaForwardPass::launch_segment(const StepLaunch& step, int32_t segment) {
    const int32_t begin = segment * kSegmentLayers;
    if (segment == 0) K3POD_TRY(launch_input(step));
    K3POD_TRY(
        launch_layers(step, {begin, std::min(begin + kSegmentLayers, config_.num_layers)}, {}));
    if (segment + 1 < num_segments()) return Status::ok();
    K3POD_TRY(attn_res_.mix_and_norm(step, {0, step.rows},
                                     {weights_.output_mixer, weights_.final_norm}, x_.data()));
    return head(step, step.rows);
}

Status CudaForwardPass::launch_input(const StepLaunch& step) {
    if (step.clock != nullptr) K3POD_TRY(step.clock->start(step.stream));
    K3POD_TRY(input_.upload(step.chunks.num_chunks, step.stream));
    K3POD_TRY(kernels::hand_off_begin(exchange_->link(), step.stream));
    return step.done(
        KernelKind::kInput,
        kernels::embed(
            {.table = weights_.embed, .rows = step.rows, .ids = step.ids, .out = attn_res_.begin()},
            step.stream));
}

Status CudaForwardPass::launch_layers(const StepLaunch& step, LayerRange layers,
                                      const AfterLayer& after_layer) {
    for (int32_t layer = layers.begin; layer < layers.end; ++layer) {
        K3POD_TRY(attention(step, layer));
        K3POD_TRY(mlp(step, layer));
        if (after_layer) K3POD_TRY(after_layer(layer));
    }
    return Status::ok();
}

Status CudaForwardPass::attention(const StepLaunch& step, int32_t layer) {
    const DeviceLayer& weights = weights_.layers[static_cast<size_t>(layer)];
    const int32_t index = index_in_kind_[static_cast<size_t>(layer)];
    K3POD_TRY(attn_res_.mix_and_norm(step, {0, step.rows},
                                     {weights.attention_mixer, weights.input_norm}, x_.data()));
    // Behind the mix: this layer still reads the accumulator that it freezes.
    if (layer % config_.attn_res_block == 0) attn_res_.freeze();
    float* const y = attn_res_.sublayer_output();
    switch (config_.attention[static_cast<size_t>(layer)]) {
        case AttentionKind::kKda:
            return kda_.launch(step, weights.kda, index, x_.data(), y);
        case AttentionKind::kMla:
            return mla_.launch(step, weights.mla, index, x_.data(), y);
    }
    return internal_error("a layer without attention");
}

Status CudaForwardPass::mlp(const StepLaunch& step, int32_t layer) {
    const DeviceLayer& weights = weights_.layers[static_cast<size_t>(layer)];
    K3POD_TRY(attn_res_.mix_and_norm(step, {0, step.rows},
                                     {weights.mlp_mixer, weights.post_attention_norm}, x_.data()));
    float* const y = attn_res_.sublayer_output();
    if (config_.is_moe_layer(layer)) {
        return moe_.launch(step, weights.moe, layer - config_.first_dense_layers, x_.data(), y);
    }
    return step.done(KernelKind::kDenseMlp, dense_.launch(step, weights.dense, x_.data(), y));
}

// host_logits_[num_logits, V] of the first rows of x_, which were mixed and normed.
Status CudaForwardPass::head(const StepLaunch& step, int32_t num_logits) {
    const kernels::GemmBand band{.weight = weights_.lm_head,
                                 .y = dense_rows_out(logits_.data(), config_.vocab)};
    StepLaunch rows = step;
    rows.rows = num_logits;
    K3POD_TRY(project(rows, dense_rows(x_.data(), config_.hidden), {&band, 1}));
    const int64_t bytes = int64_t{num_logits} * config_.vocab * int64_t{sizeof(float)};
    return step.done(KernelKind::kHead,
                     copy_to_host(host_logits_.data(), logits_.data(), bytes, step.stream));
}

// As many rows at a time as the buffers hold.
Status CudaForwardPass::head_of_chunks(const StepLaunch& step, std::span<float> logits) {
    K3POD_TRY(attn_res_.settle(step));
    const auto vocab = static_cast<size_t>(config_.vocab);
    for (const ChunkRows& chunk : rows_.chunks()) {
        const RowRange wanted = chunk.logits_rows();
        for (int32_t done = 0; done < wanted.count;) {
            const int32_t count = std::min(wanted.count - done, buckets_.back().rows);
            K3POD_TRY(attn_res_.mix_and_norm(step, {wanted.begin + done, count},
                                             {weights_.output_mixer, weights_.final_norm},
                                             x_.data()));
            K3POD_TRY(head(step, count));
            K3POD_TRY(stream_.synchronize());
            const size_t values = static_cast<size_t>(count) * vocab;
            std::memcpy(logits.data(), host_logits_.data(), values * sizeof(float));
            logits = logits.subspan(values);
            done += count;
        }
    }
    return Status::ok();
}

Status CudaForwardPass::show(const StepLaunch& step, int32_t layer, ForwardProbe& probe) {
    if (config_.is_moe_layer(layer)) {
        K3POD_ASSIGN(const RoutingView routing, moe_.read_routing(step.rows, stream_));
        probe.on_routing(layer, routing);
    }
    K3POD_TRY(attn_res_.settle(step));
    std::vector<float> accumulator(static_cast<size_t>(step.rows) *
                                   static_cast<size_t>(config_.hidden));
    K3POD_TRY(copy_to_host(accumulator.data(), attn_res_.accumulator(),
                           static_cast<int64_t>(accumulator.size() * sizeof(float)),
                           stream_.get()));
    K3POD_TRY(stream_.synchronize());
    probe.on_layer(layer, accumulator);
    return Status::ok();
}

}  // namespace k3pod
